package propagation

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// maxUnavailable 1 holds over three clusters together, and clients see a
// rollout that goes on and ends.
func TestRolloutBudgetOverClusters(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	o := observe(t, ns)
	kubectl(t, divided(1, 1, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(6, "{maxSurge: 0, maxUnavailable: 1}"), "-n", ns, "apply", "-f", "-")
	o.settled(map[string]int32{"m1": 2, "m2": 2, "m3": 2})
	o.reset()
	kubectl(t, "", "-n", ns, "set", "image", "deployment/web", "web=registry.example.com/web:2")
	generation := get(t, ns, "deployment/web", "{.metadata.generation}")
	written, conflicts := statusWrites(t)
	began := time.Now()
	out := kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	took := time.Since(began)
	if err := o.soon(time.Second, func() error { return o.all(map[string]int32{"m1": 2, "m2": 2, "m3": 2}) }); err != nil {
		t.Errorf("kubectl says the rollout has ended: %v", err)
	}
	o.settled(map[string]int32{"m1": 2, "m2": 2, "m3": 2})
	writtenAfter, conflictsAfter := statusWrites(t)
	if writtenAfter-written < 1 || writtenAfter-written > 30 || conflictsAfter != conflicts {
		t.Errorf("%d status writes for one rollout, %d conflicts", writtenAfter-written, conflictsAfter-conflicts)
	}
	if now := get(t, ns, "deployment/web", "{.metadata.generation}"); now != generation {
		t.Errorf("the rollout took the generation from %s to %s", generation, now)
	}
	fewest, most := o.extremes()
	t.Logf("rolled out in %s, %d to %d Pods; kubectl said:\n%s", took, fewest, most, out)
	if fewest < 5 || most > 6 {
		t.Errorf("between %d available and %d Pods during the rollout, wanted 5 and 6", fewest, most)
	}
	if !strings.Contains(out, "out of 6 new replicas have been updated") {
		t.Error("the rollout was not followed to its end")
	}
	for name, client := range members(t) {
		d, err := client.AppsV1().Deployments(ns).Get(t.Context(), "web", getNow)
		if err != nil {
			t.Fatal(err)
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/web:2" {
			t.Errorf("%s runs %s", name, image)
		}
	}
}

// New weights: Pods come up in one cluster before they go in the other, a few
// at a time; a cluster without weight is left at last.
func TestMoveWithoutDip(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	o := observe(t, ns)
	kubectl(t, divided(1, 1, 0), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(8, "{maxSurge: 2, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	o.settled(map[string]int32{"m1": 4, "m2": 4})
	for _, c := range []struct {
		weights []int
		want    map[string]int32
	}{
		{[]int{3, 1, 0}, map[string]int32{"m1": 6, "m2": 2}},
		{[]int{1, 0, 1}, map[string]int32{"m1": 4, "m3": 4}},
	} {
		t.Run(fmt.Sprint(c.weights), func(t *testing.T) {
			o.reset()
			kubectl(t, divided(c.weights...), "-n", ns, "apply", "-f", "-")
			o.settled(c.want)
			fewest, most := o.extremes()
			t.Logf("between %d available and %d Pods; m1 %v, m2 %v, m3 %v", fewest, most, o.history("m1"), o.history("m2"), o.history("m3"))
			if fewest < 8 || most > 10 {
				t.Errorf("between %d available and %d Pods during the move, wanted 8 and 10", fewest, most)
			}
		})
	}
}

var statusLine = regexp.MustCompile(`(?m)^apiserver_request_total\{([^}]*resource="deployments"[^}]*subresource="status"[^}]*)\} (\d+)$`)

// statusWrites counts what the endpoint has been asked to write into the status
// of Deployments, and how often that was a conflict. Other tests of the package
// must not run at the same time.
func statusWrites(t *testing.T) (all, conflicts int) {
	t.Helper()
	for _, line := range statusLine.FindAllStringSubmatch(kubectl(t, "", "get", "--raw", "/metrics"), -1) {
		n, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line[1], `verb="GET"`) {
			continue
		}
		if all += n; strings.Contains(line[1], `code="409"`) {
			conflicts += n
		}
	}
	return all, conflicts
}
