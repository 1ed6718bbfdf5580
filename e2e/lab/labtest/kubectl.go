package labtest

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

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// Result of one command.
type Result struct {
	Out, Err string
	Code     int // -1 when it did not end in time
	Took     time.Duration
}

// kubectlLimit is for what hangs: commands that wait have a --timeout of their own.
const kubectlLimit = 4 * time.Minute

// Kubectl runs kubectl for at most kubectlLimit. It works in cleanups too.
func Kubectl(t testing.TB, kubeconfig, stdin string, args ...string) Result {
	t.Helper()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), kubectlLimit)
	defer cancel()
	return Run(ctx, t, kubeconfig, stdin, set.Path("kubectl"), args...)
}

// Run runs a program with a kubeconfig.
func Run(ctx context.Context, t testing.TB, kubeconfig, stdin, binary string, args ...string) Result {
	t.Helper()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 2 * time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	started := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("%s %v: %v", binary, args, err)
		return Result{Code: -1, Err: err.Error()}
	}
	return Result{Out: out.String(), Err: errOut.String(), Code: cmd.ProcessState.ExitCode(), Took: time.Since(started)}
}

// MustKubectl fails the test when the command fails, and returns its output.
func MustKubectl(t testing.TB, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	res := Kubectl(t, kubeconfig, stdin, args...)
	if res.Code != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s%s", strings.Join(args, " "), res.Code, res.Out, res.Err)
	}
	return res.Out
}

// UniqueName is a name that no other run has used.
func UniqueName(t testing.TB, base string) string {
	t.Helper()
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return base + "-" + hex.EncodeToString(b[:])
}

// NamespaceName is a name for a namespace of the test that no other run has used.
func NamespaceName(t testing.TB) string {
	t.Helper()
	base, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "/")
	return UniqueName(t, base)
}

// Namespace makes a namespace with a name of its own in the cluster of the
// kubeconfig and removes it with the test.
func Namespace(t testing.TB, kubeconfig string) string {
	t.Helper()
	ns := NamespaceName(t)
	MustKubectl(t, kubeconfig, "", "create", "namespace", ns)
	t.Cleanup(func() {
		if res := Kubectl(t, kubeconfig, "", "delete", "namespace", ns, "--wait=false"); res.Code != 0 {
			t.Errorf("delete namespace %s: %s", ns, res.Err)
		}
	})
	return ns
}

// Client fails the test when the kubeconfig of a cluster is unusable.
func Client(t testing.TB, cluster interface {
	Client() (kubernetes.Interface, error)
},
) kubernetes.Interface {
	t.Helper()
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Config fails the test when the kubeconfig of a cluster is unusable.
func Config(t testing.TB, cluster interface {
	RESTConfig() (*rest.Config, error)
},
) *rest.Config {
	t.Helper()
	config, err := cluster.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}
