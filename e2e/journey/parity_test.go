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
	allowed := map[string]string{}
	for _, d := range listed {
		allowed[d.Command] += strings.TrimRight(d.Diff, "\n") + "\n"
	}
	bin := t.TempDir()
	if err := os.Symlink(world.plain.Artifacts().Path("kubectl"), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		t.Run(group.Name, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			plain := side{world.plain.Kubeconfig(), t.TempDir(), ns}
			endpoint := side{world.system.Kubeconfig(), t.TempDir(), ns}
			for _, s := range []side{plain, endpoint} {
				mustKubectl(t, s.kubeconfig, "", "create", "namespace", ns)
				t.Cleanup(func() { removeNamespace(t, ns, s.kubeconfig) })
			}
			for _, c := range group.Commands {
				compareCommand(t, bin, plain, endpoint, c, allowed[group.Name+"/"+c.Name])
			}
		})
	}
}

func compareCommand(t *testing.T, bin string, plain, endpoint side, c parity.Command, allowed string) {
	t.Helper()
	var results [2]result
	done := make(chan struct{})
	go func() {
		defer close(done)
		results[1] = endpoint.shell(t, bin, c)
	}()
	results[0] = plain.shell(t, bin, c)
	<-done
	for i, name := range []string{"plain", "the endpoint"} {
		if results[i].code != c.Code {
			t.Errorf("%s: %s: exit code %d, want %d\n%s", c.Name, name, results[i].code, c.Code, results[i].out)
			return
		}
	}
	if c.Quiet {
		return
	}
	got := parity.Compare(parity.Normalise(results[0].out, plain.ns), parity.Normalise(results[1].out, endpoint.ns), c.Unordered)
	if got != allowed {
		t.Errorf("%s: differs by\n%s\nlisted is\n%s", c.Name, got, allowed)
		if os.Getenv("JOURNEY_VERBOSE") != "" {
			t.Logf("plain:\n%s\nthe endpoint:\n%s", results[0].out, results[1].out)
		}
	}
}

const commandLimit = 90 * time.Second

// shell runs a command with both outputs in one, as a user sees them.
func (s side) shell(t *testing.T, bin string, c parity.Command) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	script := fmt.Sprintf("exec 2>&1; cd %q; export PATH=%q:$PATH HOME=%q NS=%q\nkubectl() { command kubectl -n \"$NS\" \"$@\"; }\n%s", s.dir, bin, s.dir, s.ns, c.Run)
	return run(ctx, t, s.kubeconfig, c.Stdin, "bash", "-c", script)
}
