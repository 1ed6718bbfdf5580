package spine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// drillFleet is a namespace of workloads of 10 replicas each, half in m1 and
// half in m2.
type drillFleet struct {
	ns        string
	workloads int
	before    map[string]map[string]int32 // by cluster and workload
}

func (f *drillFleet) replicas() int { return 10 * f.workloads }

// allowed is one percent of the capacity.
func (f *drillFleet) allowed() int32 { return int32(f.replicas() / 100) }

const drillPolicy = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: fleet}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    clusterAffinity: {labelSelector: {matchLabels: {tier: drill}}}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m1]}, weight: 1}, {targetCluster: {clusterNames: [m2]}, weight: 1}]}
---
`

func startFleet(t *testing.T) *drillFleet {
	t.Helper()
	f := &drillFleet{workloads: number("ISTHMUS_E2E_WORKLOADS", 30)}
	useFlags(t, fmt.Sprintf("--breaker-replicas-floor=%d", f.allowed()), "--breaker-objects-floor=10", "--breaker-small-fleet=0")
	for _, m := range members() {
		kubectl(t, "", "label", "cluster", m.Name(), "tier=drill", "--overwrite")
	}
	f.ns = labtest.UniqueName(t, "drills")
	kubectl(t, "", "create", "namespace", f.ns)
	kubectl(t, drillPolicy, "-n", f.ns, "apply", "-f", "-")
	const chunk = 40 // what one command does in time
	for first := 0; first < f.workloads; first += chunk {
		var b strings.Builder
		for i := first; i < min(first+chunk, f.workloads); i++ {
			b.WriteString(deployment(fmt.Sprintf("web-%03d", i), 10))
		}
		kubectl(t, b.String(), "-n", f.ns, "apply", "-f", "-")
	}
	labtest.Eventually(t, within(2*time.Minute), func(ctx context.Context) error {
		for _, m := range members() {
			held, err := f.at(ctx, t, m)
			if err != nil {
				return err
			}
			for name, n := range held {
				if n != 5 {
					return fmt.Errorf("%s in %s has %d replicas", name, m.Name(), n)
				}
			}
			if len(held) != f.workloads {
				return fmt.Errorf("%s has %d workloads of %d", m.Name(), len(held), f.workloads)
			}
		}
		return nil
	})
	f.before = f.all(t)
	return f
}

func (f *drillFleet) at(ctx context.Context, t testing.TB, m *lab.Member) (map[string]int32, error) {
	list, err := labtest.Client(t, m).AppsV1().Deployments(f.ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]int32{}
	for _, d := range list.Items {
		if d.DeletionTimestamp == nil {
			out[d.Name] = *d.Spec.Replicas
		}
	}
	return out, nil
}

func (f *drillFleet) all(t testing.TB) map[string]map[string]int32 {
	t.Helper()
	out := map[string]map[string]int32{}
	for _, m := range members() {
		held, err := f.at(t.Context(), t, m)
		if err != nil {
			t.Fatal(err)
		}
		out[m.Name()] = held
	}
	return out
}

// lost sums what each copy has less than before.
func (f *drillFleet) lost(t testing.TB) int32 {
	t.Helper()
	var sum int32
	now := f.all(t)
	for cluster, held := range f.before {
		for name, n := range held {
			sum += max(0, n-now[cluster][name])
		}
	}
	return sum
}

// holds checks, for some time after a mistake, that at most one percent of the
// capacity is gone.
func (f *drillFleet) holds(t *testing.T) {
	t.Helper()
	for range 8 {
		time.Sleep(time.Second)
		if lost := f.lost(t); lost > f.allowed() {
			t.Fatalf("%d of %d replicas are lost, at most %d may be", lost, f.replicas(), f.allowed())
		}
	}
	t.Logf("%d of %d replicas are lost", f.lost(t), f.replicas())
}

// short names a workload that has not its 10 replicas, over both clusters; ""
// when all have. The few that moved before the stop may stay where they went.
func (f *drillFleet) short(t testing.TB) string {
	t.Helper()
	now := f.all(t)
	for name := range f.before["m1"] {
		if n := now["m1"][name] + now["m2"][name]; n != 10 {
			return fmt.Sprintf("%s has %d replicas, m1 %d and m2 %d", name, n, now["m1"][name], now["m2"][name])
		}
	}
	return ""
}

// recovers waits until all is there again and nothing is stopped.
func (f *drillFleet) recovers(t *testing.T) {
	t.Helper()
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		said, err := world.System.Command(ctx, "breaker", "status")
		if err != nil {
			return err
		}
		if short := f.short(t); short != "" {
			return fmt.Errorf("%s; the breaker says:\n%s", short, said)
		}
		if lost := f.lost(t); lost > f.allowed() {
			return fmt.Errorf("%d replicas have not come back; the breaker says:\n%s", lost, said)
		}
		if !strings.Contains(said, "Nothing is stopped") {
			return fmt.Errorf("the mistake was taken back, and the breaker says:\n%s", said)
		}
		return nil
	})
	f.before = f.all(t)
}

// stopped waits until the breaker names a trip, with a way on.
func stopped(t *testing.T, trip string) {
	t.Helper()
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		said, err := world.System.Command(ctx, "breaker", "status")
		if err != nil {
			return err
		}
		for _, want := range []string{trip + ": stopped", "waiting: ", "breaker approve " + trip} {
			if !strings.Contains(said, want) {
				return fmt.Errorf("breaker status says\n%s\nwant %q", said, want)
			}
		}
		return nil
	})
}

// useFlags restarts the endpoint with further flags, until the end of the test.
func useFlags(t *testing.T, flags ...string) {
	t.Helper()
	run := func(o lab.SystemOptions) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(3*time.Minute))
		defer cancel()
		stop(t, false)
		s, err := lab.StartSystem(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		world.System = s
	}
	plain := world.SystemOptions(func(string, ...any) {})
	changed := plain
	changed.Flags = append(changed.Flags, flags...)
	run(changed)
	t.Cleanup(func() { run(plain) })
}

// Mistakes that cost a fleet are stopped before one percent of it is gone, and
// can be taken back.
func TestBreakerDrills(t *testing.T) {
	f := startFleet(t)
	t.Run("relabelled Clusters", func(t *testing.T) {
		kubectl(t, "", "label", "cluster", "m2", "tier=other", "--overwrite")
		stopped(t, "derived")
		f.holds(t)
		awaitCondition(t, "m2", "RemovalsAllowed", "False BreakerTripped")
		awaitEvent(t, "BreakerTripped")
		stop(t, true)
		restart(t)
		f.holds(t)
		stopped(t, "derived")
		kubectl(t, "", "label", "cluster", "m2", "tier=drill", "--overwrite")
		f.recovers(t)
		awaitCondition(t, "m2", "RemovalsAllowed", "True")
	})
	patch := func(t *testing.T, placement string) {
		kubectl(t, "", "-n", f.ns, "patch", "propagationpolicy", "fleet", "--type=json", "-p", placement)
	}
	t.Run("a mistyped weight", func(t *testing.T) {
		const path = `/spec/placement/replicaScheduling/weightPreference/staticWeightList/0/weight`
		patch(t, `[{"op":"replace","path":"`+path+`","value":1000}]`)
		stopped(t, "derived")
		f.holds(t)
		stop(t, true)
		restart(t)
		// At once: nothing has been tried again since.
		patch(t, `[{"op":"replace","path":"`+path+`","value":1}]`)
		f.recovers(t)
	})
	t.Run("an empty selector", func(t *testing.T) {
		patch(t, `[{"op":"replace","path":"/spec/placement/clusterAffinity","value":{"labelSelector":{"matchLabels":{"tier":""}}}}]`)
		f.holds(t)
		patch(t, `[{"op":"replace","path":"/spec/placement/clusterAffinity","value":{"labelSelector":{"matchLabels":{"tier":"drill"}}}}]`)
		f.recovers(t)
	})
	t.Run("a deleted policy", func(t *testing.T) {
		kubectl(t, "", "-n", f.ns, "delete", "propagationpolicy", "fleet", "--timeout=150s")
		f.holds(t)
		kubectl(t, drillPolicy, "-n", f.ns, "apply", "-f", "-")
		f.recovers(t)
	})
	t.Run("ordinary work", func(t *testing.T) {
		kubectl(t, "", "-n", f.ns, "delete", "deployment", "web-000", "--timeout=150s")
		kubectl(t, deployment("web-000", 10), "-n", f.ns, "apply", "-f", "-")
		f.recovers(t)
	})
	t.Run("a deleted namespace", func(t *testing.T) { f.namespaceIsDeleted(t) })
}

// namespaceIsDeleted: nothing goes before it is approved, then everything.
func (f *drillFleet) namespaceIsDeleted(t *testing.T) {
	kubectl(t, "", "delete", "namespace", f.ns, "--wait=false")
	stopped(t, "namespace/"+f.ns)
	f.holds(t)
	if lost := f.lost(t); lost > 0 {
		t.Errorf("%d replicas of a namespace that waits are lost", lost)
	}
	command(t, "breaker", "approve", "namespace/"+f.ns)
	labtest.Eventually(t, within(2*time.Minute), func(ctx context.Context) error {
		for _, m := range members() {
			held, err := f.at(ctx, t, m)
			if err != nil || len(held) > 0 {
				return fmt.Errorf("after the approval %s has %d workloads: %w", m.Name(), len(held), err)
			}
		}
		return nil
	})
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.drill.example.com}
spec:
  group: drill.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: drill-widgets}
spec:
  resourceSelectors:
  - {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: widgets.drill.example.com}
  - {apiVersion: drill.example.com/v1, kind: Widget}
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
`

// A deleted CustomResourceDefinition takes its objects along: it waits. After a
// rejection the objects stay in the members.
func TestBreakerCRD(t *testing.T) {
	useFlags(t, "--breaker-objects-floor=10", "--breaker-small-fleet=0")
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, widgets, "apply", "-f", "-")
	t.Cleanup(func() {
		labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "clusterpropagationpolicy", "drill-widgets", "--ignore-not-found")
	})
	const objects = 20
	var b strings.Builder
	for i := range objects {
		fmt.Fprintf(&b, "apiVersion: drill.example.com/v1\nkind: Widget\nmetadata: {name: w-%d}\nspec: {n: %d}\n---\n", i, i)
	}
	labtest.Eventually(t, within(time.Minute), func(context.Context) error {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), b.String(), "-n", ns, "apply", "-f", "-"); res.Code != 0 {
			return fmt.Errorf("%s", res.Err)
		}
		return nil
	})
	held := func(m *lab.Member) (int, string) {
		res := labtest.Kubectl(t, m.Kubeconfig(), "", "-n", ns, "get", "widgets.drill.example.com", "-o", "name")
		return strings.Count(res.Out, "\n"), res.Err
	}
	all := func(context.Context) error {
		for _, m := range members() {
			if n, said := held(m); n != objects {
				return fmt.Errorf("%s holds %d of %d Widgets: %s", m.Name(), n, objects, said)
			}
		}
		return nil
	}
	labtest.Eventually(t, within(90*time.Second), all)
	kubectl(t, "", "delete", "crd", "widgets.drill.example.com", "--wait=false")
	stopped(t, "crd/widgets.drill.example.com")
	for range 8 {
		time.Sleep(time.Second)
		if err := all(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "breaker", "reject", "crd/widgets.drill.example.com")
	labtest.Eventually(t, within(time.Minute), func(context.Context) error {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "get", "crd", "widgets.drill.example.com", "-o", "name"); res.Code == 0 {
			return fmt.Errorf("the rejected CustomResourceDefinition is still in the control plane")
		}
		return nil
	})
	if err := all(t.Context()); err != nil {
		t.Errorf("after the rejection: %v", err)
	}
	for _, m := range members() {
		marked := labtest.MustKubectl(t, m.Kubeconfig(), "", "-n", ns, "get", "widgets.drill.example.com", "-l", "isthmus.dev/managed=true", "-o", "name")
		if marked != "" {
			t.Errorf("released objects in %s still carry our marks: %s", m.Name(), marked)
		}
		labtest.MustKubectl(t, m.Kubeconfig(), "", "delete", "crd", "widgets.drill.example.com", "--timeout=150s")
	}
}
