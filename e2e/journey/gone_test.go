package journey

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+) -> 80`)

// kubectl port-forward ends with an error when its Pod is gone and somebody
// connects, as over one plain cluster, over WebSocket and over SPDY; until then
// it serves.
func TestForwardedPodGoes(t *testing.T) {
	t.Parallel()
	for cluster, kubeconfig := range map[string]string{"plain": world.plain.Kubeconfig(), "endpoint": world.System.Kubeconfig()} {
		ns := labtest.Namespace(t, kubeconfig)
		for protocol, webSockets := range map[string]string{"websocket": "true", "spdy": "false"} {
			t.Run(cluster+" "+protocol, func(t *testing.T) {
				pod := runPod(t, kubeconfig, ns, protocol)
				f := forward(t, kubeconfig, webSockets, ns, pod)
				if err := fetch(t.Context(), f.port); err != nil {
					t.Errorf("before: %v", err)
				}
				labtest.MustKubectl(t, kubeconfig, "", "-n", ns, "delete", "pod", pod, "--timeout=50s")
				code, said := f.untilEnd(t)
				if code != 1 || !strings.Contains(said, "lost connection to pod") {
					t.Errorf("kubectl port-forward ended with %d and %q, want 1 and a lost connection", code, said)
				}
			})
		}
	}
}

// forwarded is a running kubectl port-forward.
type forwarded struct {
	port int
	cmd  *exec.Cmd
	said *strings.Builder // complete when it has ended
	done chan error
}

func forward(t *testing.T, kubeconfig, webSockets, ns, pod string) *forwarded {
	t.Helper()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	f := &forwarded{said: &strings.Builder{}, done: make(chan error, 1)}
	f.cmd = exec.CommandContext(ctx, set.Path("kubectl"), "-n", ns, "port-forward", "pod/"+pod, ":80", "--address", "127.0.0.1")
	f.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+webSockets)
	f.cmd.Stderr = f.said
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	ready := make(chan int, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if m := forwarding.FindStringSubmatch(lines.Text()); m != nil {
				port, _ := strconv.Atoi(m[1])
				ready <- port
			}
		}
		f.done <- errors.Join(lines.Err(), f.cmd.Wait())
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case f.port = <-ready:
	case err := <-f.done:
		t.Fatalf("kubectl port-forward: %v, %s", err, f.said)
	case <-time.After(time.Minute):
		t.Fatal("kubectl port-forward is not ready after a minute")
	}
	return f
}

// untilEnd connects until kubectl has ended.
func (f *forwarded) untilEnd(t *testing.T) (code int, said string) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); {
		last = fetch(t.Context(), f.port)
		select {
		case err := <-f.done:
			t.Logf("kubectl has ended: %v", err)
			return f.cmd.ProcessState.ExitCode(), f.said.String()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return -1, fmt.Sprintf("it runs 90 s after its Pod went; a connection says: %v", last)
}
