package adoption

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// Workloads of all kinds and makers in one cluster are taken over and given back:
// no object is made anew, no container started again, the other cluster sees
// nothing of it, and what the template drops is dropped in the member.
func TestAdoptOneCluster(t *testing.T) {
	m1, m2 := world.Member("m1"), world.Member("m2")
	ns := labtest.Namespace(t, m1.Kubeconfig())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range workloads(t) {
		makeWorkload(t, rng, m1, ns, fmt.Sprintf("w%d", i))
	}
	makeOthers(t, m1, ns)
	inject(t, m1, ns)
	running := settled(t, m1, ns)
	before := objects(t, m1, ns)

	mustCommand(t, "adopt", "--cluster", "m1", "-n", ns, "--dry-run")
	for name, u := range objects(t, m1, ns) {
		if ours(u) || before[name].GetResourceVersion() != u.GetResourceVersion() && !strings.Contains(name, "autoscalers") {
			t.Errorf("a dry run has changed %s", name)
		}
	}
	if left := objects(t, world.System, ns); len(left) > 0 {
		t.Errorf("a dry run has created templates: %v", left)
	}
	started := time.Now()
	out := mustCommand(t, "adopt", "--cluster", "m1", "-n", ns)
	t.Logf("%d objects, %d Pods taken over in %s", len(before), len(running), time.Since(started))
	if strings.Contains(out, "pod template") {
		t.Errorf("unexpected output:\n%s", out)
	}
	sameObjects(t, m1, ns, before, true)
	samePods(t, m1, ns, running)
	if found := objects(t, m2, ns); len(found) > 0 {
		t.Errorf("the other cluster got %d objects", len(found))
	}
	dropped(t, m1, ns)
	samePods(t, m1, ns, running)
	quiet(t, m1, ns)

	mustCommand(t, "release", "-n", ns)
	sameObjects(t, m1, ns, before, false)
	samePods(t, m1, ns, running)
	for name := range objects(t, world.System, ns) {
		t.Errorf("the template %s is left", name)
	}
}

// sameObjects: every object is still the one it was, and ours or not.
func sameObjects(t *testing.T, m *lab.Member, ns string, before map[string]*unstructured.Unstructured, managed bool) {
	t.Helper()
	after := objects(t, m, ns)
	for name, was := range before {
		is, ok := after[name]
		switch {
		case !ok:
			t.Errorf("%s is gone", name)
		case is.GetUID() != was.GetUID():
			t.Errorf("%s has been made anew", name)
		case ours(is) != managed || (is.GetLabels()["isthmus.dev/managed"] == "true") != managed:
			t.Errorf("%s: managed is not %v: %v %v", name, managed, is.GetLabels(), is.GetManagedFields())
		}
		for k := range is.GetAnnotations() {
			if !managed && strings.HasPrefix(k, "isthmus.dev/") {
				t.Errorf("%s keeps the annotation %s", name, k)
			}
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d objects are %d", len(before), len(after))
	}
}

// dropped takes keys out of all templates and waits until the member has dropped
// them too.
func dropped(t *testing.T, m *lab.Member, ns string) {
	t.Helper()
	gone := 0
	for name, u := range objects(t, world.System, ns) {
		if _, ok := u.GetLabels()["dropped"]; ok {
			gone++
			dropFrom(t, ns, name, `{"metadata":{"labels":{"dropped":null},"annotations":{"dropped.example.com/a":null}}}`)
		}
	}
	dropFrom(t, ns, "configmaps/settings", `{"data":{"dropped":null}}`)
	if gone < workloads(t) {
		t.Errorf("only %d templates had the label", gone)
	}
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		for name, u := range objects(t, m, ns) {
			if u.GetLabels()["dropped"] != "" || u.GetAnnotations()["dropped.example.com/a"] != "" {
				return fmt.Errorf("%s keeps what its template has dropped: %v", name, u.GetManagedFields())
			}
			if data, ok := u.Object["data"].(map[string]any); ok && name == "configmaps/settings" && data["dropped"] != nil {
				return fmt.Errorf("%s keeps its key", name)
			}
		}
		return nil
	})
}

// quiet: the engine has nothing more to write.
func quiet(t *testing.T, m *lab.Member, ns string) {
	t.Helper()
	time.Sleep(3 * time.Second)
	log := labtest.MemberAudit(t, m)
	time.Sleep(8 * time.Second)
	for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
		if a.ObjectRef.Namespace == ns {
			t.Errorf("the engine still writes: %s %s", a.Verb, a.RequestURI)
		}
	}
}
