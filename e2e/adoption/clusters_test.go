package adoption

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

// The same workloads in two clusters become one template: replicas as they are,
// differences as overrides, and what cannot be expressed is refused by name while
// the rest goes on.
func TestAdoptTwoClusters(t *testing.T) {
	m1, m2 := world.Member("m1"), world.Member("m2")
	ns := labtest.Namespace(t, m1.Kubeconfig())
	labtest.MustKubectl(t, m2.Kubeconfig(), "", "create", "namespace", ns)
	t.Cleanup(func() {
		labtest.Kubectl(t, m2.Kubeconfig(), "", "delete", "namespace", ns, "--wait=false")
		labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "namespace", ns, "--wait=false")
	})
	config := `{apiVersion: v1, kind: ConfigMap, metadata: {name: site}, data: {site: %s, same: "1"}}`
	odd := strings.Replace(manifest("Deployment", "odd", 1), "matchLabels: {app: odd}", "matchLabels: {app: odd, tier: x}", 1)
	odd = strings.Replace(odd, "labels: {app: odd}}\n", "labels: {app: odd, tier: x}}\n", 1)
	for i, m := range []*lab.Member{m1, m2} {
		web := strings.Replace(manifest("Deployment", "web", 3-i), `{name: A, value: "1"}`, fmt.Sprintf(`{name: A, value: "%s"}`, m.Name()), 1)
		bodies := []string{web, manifest("StatefulSet", "db", 1+i), manifest("DaemonSet", "agent", 0), fmt.Sprintf(config, m.Name())}
		if i == 0 {
			bodies = append(bodies, manifest("Deployment", "odd", 1))
		} else {
			bodies = append(bodies, odd)
		}
		labtest.MustKubectl(t, m.Kubeconfig(), strings.Join(bodies, "\n---\n"), "-n", ns, "apply", "-f", "-")
	}
	before := map[string]map[string]string{"m1": settled(t, m1, ns), "m2": settled(t, m2, ns)}

	out, err := command(t, "adopt", "--cluster", "m1,m2", "-n", ns)
	if err == nil || !strings.Contains(err.Error(), "deployment.apps/odd") || !strings.Contains(out, "spec.selector.matchLabels.tier") {
		t.Errorf("what differs too much is not refused by name: %v\n%s", err, out)
	}
	for _, says := range []string{"deployment.apps/web: in m1 (3), m2 (2)", "statefulset.apps/db: in m1 (1), m2 (2)", "override for m2", "4 of 5 objects taken over"} {
		if !strings.Contains(out, says) {
			t.Errorf("the output does not say %q:\n%s", says, out)
		}
	}
	for _, m := range []*lab.Member{m1, m2} {
		samePods(t, m, ns, before[m.Name()])
		for name, u := range objects(t, m, ns) {
			if ours(u) != (name != "deployments/odd") {
				t.Errorf("%s: %s: ours is %v", m.Name(), name, ours(u))
			}
		}
	}
	web, err := dynamicOf(t, world.System).Resource(deployments).Namespace(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if spec, ok := web.Object["spec"].(map[string]any); !ok || spec["replicas"] != int64(5) {
		t.Errorf("the template has %v replicas", spec["replicas"])
	}
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")

	// Weights are the present shares: 10 replicas are 6 and 4.
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "scale", "deployment/web", "--replicas=10")
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		for m, want := range map[*lab.Member]int32{m1: 6, m2: 4} {
			d, err := labtest.Client(t, m).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if *d.Spec.Replicas != want || d.Spec.Template.Spec.Containers[0].Env[0].Value != m.Name() {
				return fmt.Errorf("%s: %d replicas, %v", m.Name(), *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Env)
			}
		}
		return nil
	})

	mustCommand(t, "release", "-n", ns, "statefulset/db")
	for _, m := range []*lab.Member{m1, m2} {
		if u := objects(t, m, ns)["statefulsets/db"]; u == nil || ours(u) || u.GetLabels()["isthmus.dev/managed"] != "" {
			t.Errorf("%s: the StatefulSet is not given back: %v", m.Name(), u)
		}
	}
}

// A CustomResourceDefinition brings its objects.
func TestAdoptCustomResources(t *testing.T) {
	m1 := world.Member("m1")
	ns := labtest.Namespace(t, m1.Kubeconfig())
	group := labtest.UniqueName(t, "adopt") + ".example.com"
	t.Cleanup(func() {
		labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "crd", "gears."+group, "--wait=false")
		labtest.Kubectl(t, m1.Kubeconfig(), "", "delete", "crd", "gears."+group, "--wait=false")
	})
	labtest.MustKubectl(t, m1.Kubeconfig(), fmt.Sprintf(gearsCRD, group), "apply", "-f", "-")
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "wait", "crd/gears."+group, "--for=condition=Established", "--timeout=150s")
	for i := range 3 {
		gear := fmt.Sprintf("{apiVersion: %s/v1, kind: Gear, metadata: {name: g%d}, spec: {teeth: %d, dropped: later}}", group, i, i)
		labtest.MustKubectl(t, m1.Kubeconfig(), gear, "-n", ns, "apply", "-f", "-")
	}
	uids := func() string {
		return labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "get", "gears."+group, "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := uids()
	out := mustCommand(t, "adopt", "--cluster", "m1", "-n", ns, "crd/gears."+group)
	if !strings.Contains(out, "4 of 4 objects taken over") {
		t.Errorf("unexpected output:\n%s", out)
	}
	if after := uids(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "patch", "gears."+group, "g1", "--type=merge", "-p", `{"spec":{"dropped":null,"teeth":9}}`)
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		spec := labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "get", "gears."+group, "g1", "-o", "jsonpath={.spec}")
		if spec != `{"teeth":9}` {
			return fmt.Errorf("spec in the member: %s", spec)
		}
		return nil
	})
}

const gearsCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: gears, singular: gear, kind: Gear, listKind: GearList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {teeth: {type: integer}, dropped: {type: string}}}}}}
`
