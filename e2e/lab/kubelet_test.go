package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// testStreams does with kubectl what people do with Pods, over both transports.
func testStreams(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface, pod corev1.Pod) {
	file := filepath.Join(t.TempDir(), "in.bin")
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data) // never fails
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"websocket", "spdy"} {
		k := kubectl{member: m, pod: pod, transport: transport}
		t.Run(transport+"/exit code", func(t *testing.T) { k.testExitCode(t, ctx) })
		t.Run(transport+"/end of input", func(t *testing.T) {
			if out, err := k.run(ctx, strings.NewReader("data\n"), "exec", "-i", pod.Name, "--", "cat"); err != nil || out != "data\n" {
				t.Fatalf("%q, %v", out, err)
			}
		})
		t.Run(transport+"/10 MB", func(t *testing.T) {
			out, err := k.run(ctx, bytes.NewReader(data), "exec", "-i", pod.Name, "--", "cat")
			if err != nil || sha256.Sum256([]byte(out)) != sha256.Sum256(data) {
				t.Fatalf("%d of %d bytes came back, %v", len(out), len(data), err)
			}
		})
		t.Run(transport+"/terminal", func(t *testing.T) { k.testTerminal(t, ctx, client) })
		t.Run(transport+"/cp", func(t *testing.T) { k.testCopy(t, ctx, file, data) })
		t.Run(transport+"/port-forward", func(t *testing.T) { k.testForward(t, ctx) })
	}
	k := kubectl{member: m, pod: pod, transport: "websocket"}
	t.Run("follow", func(t *testing.T) { k.testFollow(t, ctx) })
	t.Run("previous", func(t *testing.T) {
		out, err := k.run(ctx, nil, "logs", "-p", pod.Name)
		if err == nil || !strings.Contains(err.Error(), "previous terminated container") {
			t.Fatalf("%q, %v: a container that never restarted has no previous log", out, err)
		}
	})
}

// kubectl runs against one Pod.
type kubectl struct {
	member    *Member
	pod       corev1.Pod
	transport string
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.member.Artifacts().Path("kubectl"), append([]string{"--kubeconfig=" + k.member.Kubeconfig(), "-n", k.pod.Namespace}, args...)...)
	websocket := fmt.Sprint(k.transport == "websocket")
	cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websocket, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websocket)
	cmd.WaitDelay = time.Second
	return cmd
}

const kubectlLimit = 20 * time.Second

// run returns the output; the error tells what was said besides.
func (k kubectl) run(ctx context.Context, in io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	cmd := k.command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w (%w): %s", err, context.Cause(ctx), errOut.String())
	}
	return out.String(), nil
}

func (k kubectl) testExitCode(t *testing.T, ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	cmd := k.command(ctx, "exec", k.pod.Name, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	out, err := cmd.Output()
	if err == nil || cmd.ProcessState.ExitCode() != 7 || string(out) != "out\n" {
		t.Fatalf("%q, %v, want exit code 7", out, err)
	}
}

type oneSize struct {
	sizes chan *remotecommand.TerminalSize
}

func (s oneSize) Next() *remotecommand.TerminalSize { return <-s.sizes }

func (k kubectl) testTerminal(t *testing.T, ctx context.Context, client kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(k.pod.Namespace).Name(k.pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "web", Command: []string{"stty", "size"}, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec).URL()
	config := restConfig(t, k.member)
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, url)
	if k.transport == "websocket" {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	sizes := oneSize{make(chan *remotecommand.TerminalSize, 1)}
	sizes.sizes <- &remotecommand.TerminalSize{Width: 77, Height: 33}
	defer close(sizes.sizes)
	input, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	var out bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: &out, Tty: true, TerminalSizeQueue: sizes})
	if err != nil || out.String() != "33 77\r\n" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

func (k kubectl) testCopy(t *testing.T, ctx context.Context, file string, data []byte) {
	for _, there := range []string{"/tmp/" + k.transport + ".bin", "relative-" + k.transport + ".bin"} {
		back := filepath.Join(t.TempDir(), "back.bin")
		if _, err := k.run(ctx, nil, "cp", file, k.pod.Name+":"+there); err != nil {
			t.Fatal(err)
		}
		if _, err := k.run(ctx, nil, "cp", k.pod.Name+":"+there, back); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %d of %d bytes, %v", there, len(got), len(data), err)
		}
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> (\d+)`)

// testForward: what one connection does to itself is no matter to the others.
func (k kubectl) testForward(t *testing.T, ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	cmd := k.command(ctx, "port-forward", "--address=127.0.0.1", "pod/"+k.pod.Name, ":80", ":7")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // it was killed
	local := map[string]string{}
	for lines := bufio.NewScanner(stdout); len(local) < 2 && lines.Scan(); {
		if found := forwarding.FindStringSubmatch(lines.Text()); found != nil {
			local[found[2]] = found[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // so that it is never blocked
	for range 20 {
		conn := dial(t, local["80"])
		if _, err := io.WriteString(conn, "GET / HT"); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetLinger(0); err != nil { // the close becomes a reset
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	resp, err := http.Get("http://" + local["80"])
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if want := fmt.Sprintf("hello from cluster m1, pod default/%s, port 80\n", k.pod.Name); err != nil || string(body) != want {
		t.Fatalf("%q, %v", body, err)
	}
	echo := dial(t, local["7"])
	defer func() { _ = echo.Close() }()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { _, _ = echo.Write(sent); _ = echo.CloseWrite() }() // a failure shows in what returns
	if got, err := io.ReadAll(echo); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the echo of %d bytes: %d, %v", len(sent), len(got), err)
	}
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn) //nolint:forcetypeassert // the network is tcp
}

func (k kubectl) testFollow(t *testing.T, ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	cmd := k.command(ctx, "logs", "-f", "--tail=0", k.pod.Name)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // it was killed
	own := 0
	for lines := bufio.NewScanner(stdout); own < 3 && lines.Scan(); {
		if !strings.Contains(lines.Text(), "cluster m1") {
			t.Fatalf("%q does not name its cluster", lines.Text())
		}
		if strings.Contains(lines.Text(), " pod default/"+k.pod.Name+" ") {
			own++
		}
	}
	if own < 3 {
		t.Fatalf("%d lines of the container within %s, want one a second", own, kubectlLimit)
	}
}
