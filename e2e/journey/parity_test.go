package journey

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/journey/parity"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// side is one cluster with what a script leaves on disk for it.
type side struct {
	kubeconfig string
	dir        string
	ns         string
}

// The same commands say the same of one plain cluster and of the endpoint, but
// for what parity/differences.yaml lists.
func TestKubectlParity(t *testing.T) {
	t.Parallel()
	groups, listed, err := parity.Load("parity/commands.yaml", "parity/differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]parity.Difference{}
	for _, d := range listed {
		d.Diff = strings.TrimRight(d.Diff, "\n") + "\n"
		allowed[d.Command] = d
	}
	bin := t.TempDir()
	set := world.plain.Artifacts()
	helm, err := set.EnsureClient(t.Context(), "helm", t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"kubectl": set.Path("kubectl"), "helm": helm} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range groups {
		t.Run(group.Name, func(t *testing.T) {
			t.Parallel()
			ns := labtest.NamespaceName(t)
			plain := newSide(t, world.plain.Kubeconfig(), ns)
			endpoint := newSide(t, world.System.Kubeconfig(), ns)
			for _, c := range group.Commands {
				compareCommand(t, bin, plain, endpoint, c, allowed[group.Name+"/"+c.Name])
			}
		})
	}
}

// newSide makes the namespace and a kubeconfig that has it as its default.
func newSide(t *testing.T, kubeconfig, ns string) side {
	t.Helper()
	s := side{filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir(), ns}
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, s.kubeconfig, "", "config", "set-context", "--current", "--namespace", ns)
	labtest.MustKubectl(t, s.kubeconfig, "", "create", "namespace", ns)
	t.Cleanup(func() { removeNamespace(t, ns, kubeconfig) })
	return s
}

func compareCommand(t *testing.T, bin string, plain, endpoint side, c parity.Command, allowed parity.Difference) {
	t.Helper()
	var results [2]labtest.Result
	done := make(chan struct{})
	go func() {
		defer close(done)
		results[1] = endpoint.shell(t, bin, c)
	}()
	results[0] = plain.shell(t, bin, c)
	<-done
	wantCode := c.Code
	if allowed.Code != nil {
		wantCode = *allowed.Code
	}
	if results[0].Code != c.Code || results[1].Code != wantCode {
		t.Errorf("%s: exit codes %d and %d, want %d and %d\nplain:\n%s\nthe endpoint:\n%s", c.Name,
			results[0].Code, results[1].Code, c.Code, wantCode, results[0].Out, results[1].Out)
		return
	}
	if c.Quiet {
		return
	}
	got := parity.Compare(parity.Normalise(results[0].Out, plain.ns), parity.Normalise(results[1].Out, endpoint.ns), c.Unordered)
	if got != allowed.Diff {
		t.Errorf("%s: differs by\n%s\nlisted is\n%s", c.Name, got, allowed.Diff)
		if os.Getenv("JOURNEY_VERBOSE") != "" {
			t.Logf("plain:\n%s\nthe endpoint:\n%s", results[0].Out, results[1].Out)
		}
	}
}

const commandLimit = 90 * time.Second

// shell runs a command with both outputs in one, as a user sees them.
func (s side) shell(t *testing.T, bin string, c parity.Command) labtest.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	charts, err := filepath.Abs("charts")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("exec 2>&1; cd %q; export PATH=%q:$PATH HOME=%q NS=%q CHARTS=%q\n%s", s.dir, bin, s.dir, s.ns, charts, c.Run)
	return labtest.Run(ctx, t, s.kubeconfig, c.Stdin, "bash", "-c", script)
}
