package controllerruntime

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// spec is one result in the report of a Ginkgo suite.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// controller-runtime's own tests of its cache and its client pass against the
// endpoint, but for what differs.txt names with the clause that demands it.
func TestControllerRuntime(t *testing.T) {
	differs := differing(t)
	for _, suite := range []string{"cache", "client"} {
		t.Run(suite, func(t *testing.T) {
			passed := 0
			for _, s := range runSuite(t, suite) {
				switch _, differ := differs[suite+" "+s.name()]; {
				case s.State == "passed":
					if differ {
						t.Logf("passes, and is listed as one that differs: %s", s.name())
					}
					passed++
				case s.State == "skipped" || s.State == "pending" || differ:
				default:
					t.Errorf("%s: %s: %.600s", s.State, s.name(), s.Failure.Message)
				}
			}
			t.Logf("%d specs passed", passed)
			if passed == 0 {
				t.Error("no spec was run")
			}
		})
	}
}

// differing reads differs.txt: "SUITE NAME" below a comment with its clause.
func differing(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open("differs.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	out := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			out[line] = true
		}
	}
	return out
}

const suiteLimit = 8 * time.Minute

func runSuite(t *testing.T, name string) []spec {
	t.Helper()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	program, err := set.EnsureClient(t.Context(), name, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	source, err := set.ClientSource(t.Context(), "sigs.k8s.io/controller-runtime")
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	// The suites read files beside their sources.
	script := fmt.Sprintf("cd %q && exec env USE_EXISTING_CLUSTER=true %q -ginkgo.no-color -ginkgo.flake-attempts=3 -ginkgo.json-report=%q -ginkgo.succinct -ginkgo.focus=%q",
		filepath.Join(source, "pkg", name), program, report, os.Getenv("FOCUS"))
	var kubeconfig string
	if os.Getenv(mode) == onPlain {
		kubeconfig = world.Member("plain").Kubeconfig()
	} else {
		kubeconfig = namingNodes(t, "m1")
	}
	res := labtest.Run(ctx, t, kubeconfig, "", "bash", "-c", script)
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v: exit %d after %s\n%.2000s%.2000s", err, res.Code, res.Took, res.Out, res.Err)
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &reports); err != nil {
		t.Fatal(err)
	}
	var out []spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" || s.State != "passed" {
				out = append(out, s)
			}
		}
	}
	t.Logf("%d specs in %s", len(out), res.Took.Round(time.Second))
	return out
}
