package journey

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// result of one command.
type result struct {
	out, err string
	code     int
}

// kubectl runs kubectl; a command that does not end in time has code -1.
func kubectl(t testing.TB, kubeconfig, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return run(ctx, t, kubeconfig, stdin, world.plain.Artifacts().Path("kubectl"), args...)
}

func run(ctx context.Context, t testing.TB, kubeconfig, stdin, binary string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 2 * time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode() // -1 when it did not start or was killed
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("%s %v: %v", binary, args, err)
		return result{code: -1, err: err.Error()}
	}
	return result{out: out.String(), err: errOut.String(), code: code}
}

// mustKubectl fails the test when the command fails.
func mustKubectl(t testing.TB, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	res := kubectl(t, kubeconfig, stdin, args...)
	if res.code != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s%s", strings.Join(args, " "), res.code, res.out, res.err)
	}
	return res.out
}

// namespace is a name that no other run has used.
func namespace(t testing.TB) string {
	t.Helper()
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "/")
	return base + "-" + hex.EncodeToString(b[:])
}

// madeNamespace makes a namespace in the cluster of the kubeconfig and removes it with the test.
func madeNamespace(t testing.TB, kubeconfig string) string {
	t.Helper()
	ns := namespace(t)
	mustKubectl(t, kubeconfig, "", "create", "namespace", ns)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		res := run(ctx, t, kubeconfig, "", world.plain.Artifacts().Path("kubectl"), "delete", "namespace", ns, "--wait=false")
		if res.code != 0 {
			t.Errorf("delete namespace %s: %s", ns, res.err)
		}
	})
	return ns
}
