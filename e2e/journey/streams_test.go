package journey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const streamSize = 10 << 20

// newExecutor makes the executor of one protocol.
type newExecutor func(*rest.Config, *url.URL) (remotecommand.Executor, error)

func webSocket(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(config, "GET", u.String())
}

func spdy(config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewSPDYExecutor(config, "POST", u)
}

// shell executes commands in one Pod.
type shell struct {
	ns, pod string
	connect newExecutor
}

func (s shell) exec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, command ...string) error {
	config, err := world.System.RESTConfig()
	if err != nil {
		return err
	}
	client, err := world.System.Client()
	if err != nil {
		return err
	}
	u := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.ns).Name(s.pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "web", Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	executor, err := s.connect(config, u)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// 10 MB there and back arrive whole, an end of input is seen, exit codes and
// the two output streams stay apart, over both protocols.
func TestStreams(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	pod := runPod(t, world.System.Kubeconfig(), ns, "streams")
	for name, connect := range map[string]newExecutor{"websocket": webSocket, "spdy": spdy} {
		t.Run(name, func(t *testing.T) {
			s := shell{ns: ns, pod: pod, connect: connect}
			t.Run("10MB", s.testLarge)
			t.Run("end of input", s.testEndOfInput)
			t.Run("exit codes", s.testExitCodes)
		})
	}
}

// runPod makes a bare Pod with a container "web" and waits until it runs.
func runPod(t *testing.T, kubeconfig, ns, name string) string {
	t.Helper()
	labtest.MustKubectl(t, kubeconfig, "", "-n", ns, "run", name, "--image=registry.example.com/web:1",
		`--overrides={"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1"}]}}`)
	labtest.MustKubectl(t, kubeconfig, "", "-n", ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=150s")
	return name
}

func (s shell) testLarge(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent, received := sha256.New(), sha256.New()
	input := io.TeeReader(io.LimitReader(rand.New(rand.NewSource(1)), streamSize), sent)
	var count counter
	if err := s.exec(ctx, input, io.MultiWriter(received, &count), io.Discard, "cat"); err != nil {
		t.Fatal(err)
	}
	if count != streamSize || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
		t.Errorf("%d bytes came back with hash %x, %d were sent with %x", count, received.Sum(nil), streamSize, sent.Sum(nil))
	}
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

func (s shell) testEndOfInput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out bytes.Buffer
	if err := s.exec(ctx, strings.NewReader("one\ntwo\n"), &out, io.Discard, "sh", "-c", "wc -l; echo end"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 2 || got[0] != "2" || got[1] != "end" {
		t.Errorf("output %q", out.String())
	}
}

func (s shell) testExitCodes(t *testing.T) {
	for _, code := range []int{0, 1, 7, 137, 255} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var out, errOut bytes.Buffer
		err := s.exec(ctx, nil, &out, &errOut, "sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		cancel()
		got := 0
		var exit utilexec.CodeExitError
		switch {
		case errors.As(err, &exit):
			got = exit.Code
		case err != nil:
			t.Errorf("exit %d: %v", code, err)
		}
		if got != code || out.String() != "out\n" || errOut.String() != "err\n" {
			t.Errorf("exit %d: code %d, out %q, err %q", code, got, out.String(), errOut.String())
		}
	}
}
