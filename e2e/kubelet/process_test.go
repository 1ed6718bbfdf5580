package kubelet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// The test's binary takes the part of the command that confines.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "confine" {
		fmt.Fprintln(os.Stderr, Confine(os.Args[2:]))
		os.Exit(126)
	}
	os.Exit(m.Run())
}

func testContainer(t *testing.T) (*Server, *container) {
	t.Helper()
	s := New(Options{Cluster: "m1", Dir: t.TempDir()})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	return s, &container{pod: pod, name: "c", dir: s.opts.Dir + "/u1/c"}
}

func shell(t *testing.T, s *Server, c *container, script string) *exec.Cmd {
	t.Helper()
	cmd, err := s.command(c, []string{"sh", "-c", script}, false)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestExitCodes(t *testing.T) {
	s, c := testContainer(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -15 $$": 143} {
		err := exitError(runPiped(t.Context(), shell(t, s, c, script), processStreams{out: io.Discard}))
		// What the error stream carries is decided by this very assertion.
		exit, ok := err.(utilexec.ExitError) //nolint:errorlint // as remotecommand does
		if want == 0 {
			if err != nil {
				t.Errorf("%s: %v, want success", script, err)
			}
			continue
		}
		if !ok || exit.ExitStatus() != want {
			t.Errorf("%s: %v, want exit code %d", script, err, want)
		}
	}
	if _, err := s.command(c, []string{"no-such-program"}, false); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("an unknown program: %v, want ErrNotFound", err)
	}
	if _, err := s.command(c, []string{""}, false); !errors.Is(err, ErrBadRequest) {
		t.Errorf("no program: %v, want ErrBadRequest", err)
	}
}

func TestStreamsArriveWhole(t *testing.T) {
	s, c := testContainer(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	var out, errOut bytes.Buffer
	// The reader is slower than the process lives on.
	err := runPiped(t.Context(), shell(t, s, c, "cat; echo done >&2"),
		processStreams{in: bytes.NewReader(data), out: slowWriter{&out}, err: &errOut})
	if err != nil || sha256.Sum256(out.Bytes()) != sha256.Sum256(data) || errOut.String() != "done\n" {
		t.Fatalf("%d of %d bytes, %q, %v", out.Len(), len(data), errOut.String(), err)
	}
}

type slowWriter struct{ w io.Writer }

func (s slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.w.Write(p)
}

// The last output outlives a pause of the client that is longer than a silent
// pipe is waited for.
func TestPausedClientLosesNothing(t *testing.T) {
	s, c := testContainer(t)
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := runPiped(t.Context(), shell(t, s, c, "printf '%50000s' x; printf '%50000s' y"), processStreams{out: w})
		result <- errors.Join(err, w.Close())
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	time.Sleep(lingering + 500*time.Millisecond)
	rest, err := io.ReadAll(r)
	if err = errors.Join(err, <-result); err != nil || len(rest) != 99_999 {
		t.Fatalf("%d bytes, %v, want 99999", len(rest), err)
	}
}

func TestDescendantDoesNotHoldTheClient(t *testing.T) {
	s, c := testContainer(t)
	var out bytes.Buffer
	start := time.Now()
	err := runPiped(t.Context(), shell(t, s, c, "sleep 100 & echo $!"), processStreams{out: &out})
	if took := time.Since(start); err != nil || took > 10*time.Second {
		t.Fatalf("%v after %s", err, took)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	waitGone(t, pid)
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}

func TestClientThatLeavesEndsTheProcess(t *testing.T) {
	s, c := testContainer(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		result <- runPiped(ctx, shell(t, s, c, "trap '' HUP; echo $$; while :; do sleep 0.1; done"), processStreams{out: w})
	}()
	line := make([]byte, 32)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-result; err == nil {
		t.Fatal("a killed process succeeded")
	}
	waitGone(t, pid)
}

// A process that reads nothing must not leave the stream unread.
func TestUnwantedInputIsReadAllTheSame(t *testing.T) {
	s, c := testContainer(t)
	r, w := io.Pipe()
	go func() { _ = runPiped(t.Context(), shell(t, s, c, "exec <&-; sleep 0.5"), processStreams{in: r}) }()
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(make([]byte, 1<<20))
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the input is stuck")
	}
	_ = w.Close()
}

func TestTerminal(t *testing.T) {
	s, c := testContainer(t)
	cmd, err := s.command(c, []string{"sh", "-c", "stty size; read line; stty size; echo got $line; exit 5"}, true)
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(chan remotecommand.TerminalSize)
	input, typed := io.Pipe()
	shown, out := io.Pipe()
	result := make(chan error, 1)
	go func() {
		err := runTerminal(t.Context(), cmd, processStreams{in: input, out: out}, sizes)
		_ = out.Close()
		result <- err
	}()
	sizes <- remotecommand.TerminalSize{Width: 77, Height: 33}
	expect(t, shown, "33 77\r\n")
	sizes <- remotecommand.TerminalSize{Width: 100, Height: 40}
	time.Sleep(100 * time.Millisecond) // the size is set after it is received
	if _, err := io.WriteString(typed, "hi\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, shown, "hi\r\n40 100\r\ngot hi\r\n")
	close(sizes)
	var exit *exitStatus
	if err := <-result; !errors.As(err, &exit) || exit.code != 5 {
		t.Fatalf("%v, want exit code 5", err)
	}
	_ = typed.Close()
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v, want %q", got[:n], err, want)
	}
}

func TestConfinedContainersShareNoFiles(t *testing.T) {
	s, c := testContainer(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.opts.Confine = []string{self, "confine"}
	if !CanConfine(s.opts.Confine, s.opts.Dir) {
		t.Skip("no right to own mounts")
	}
	other := &container{pod: c.pod, name: "d", dir: s.opts.Dir + "/u1/d"}
	run := func(c *container, script string) (string, error) {
		var out bytes.Buffer
		err := runPiped(t.Context(), shell(t, s, c, script), processStreams{both: &out})
		return out.String(), err
	}
	if out, err := run(c, "echo mine > /tmp/isthmus-confined; pwd; cat isthmus-confined"); err != nil || out != "/tmp\nmine\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if out, err := run(other, "cat /tmp/isthmus-confined"); err == nil {
		t.Fatalf("another container read %q", out)
	}
	if out, err := run(c, "cat /tmp/isthmus-confined"); err != nil || out != "mine\n" {
		t.Fatalf("later: %q, %v", out, err)
	}
	if _, err := run(c, "kill -9 $$"); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("%v, want the signal", err)
	}
	var mounts syscall.Stat_t
	if err := syscall.Stat("/tmp/isthmus-confined", &mounts); err == nil {
		t.Fatal("the file is in the machine's /tmp")
	}
}
