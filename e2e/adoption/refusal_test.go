package adoption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const onlyM1 = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: only-m1}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
`

// A client that creates a Deployment with the annotation through the plain API
// takes over what is there, unless Pods would be replaced: then it is told what
// differs, nothing is touched, and a corrected template goes through.
func TestRefusedWithDiff(t *testing.T) {
	m1, endpoint := world.Member("m1"), world.System.Kubeconfig()
	ns := labtest.Namespace(t, m1.Kubeconfig())
	labtest.MustKubectl(t, endpoint, "", "create", "namespace", ns)
	t.Cleanup(func() { labtest.Kubectl(t, endpoint, "", "delete", "namespace", ns, "--wait=false") })
	labtest.MustKubectl(t, endpoint, onlyM1, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, m1.Kubeconfig(), manifest("Deployment", "web", 2), "-n", ns, "apply", "-f", "-")
	running := settled(t, m1, ns)
	there := objects(t, m1, ns)["deployments/web"]

	marked := strings.Replace(manifest("Deployment", "web", 2), "annotations: {", "annotations: {work.karmada.io/conflict-resolution: overwrite, ", 1)
	changed := strings.NewReplacer("web:1", "web:2", `{name: B, value: "2"}`, `{name: B, value: "3"}`).Replace(marked)
	labtest.MustKubectl(t, endpoint, changed, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		c := condition(ctx, t, ns, "web-deployment", "Adopted")
		for _, says := range []string{"False", "Refused", "m1:", `containers[name=web].image: "registry.example.com/web:1" -> "registry.example.com/web:2"`, `env[name=B].value: "2" -> "3"`} {
			if !strings.Contains(c, says) {
				return fmt.Errorf("the condition does not say %q: %s", says, c)
			}
		}
		return nil
	})
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		events := labtest.MustKubectl(t, endpoint, "", "-n", ns, "get", "events", "--field-selector", "reason=AdoptionRefused", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, "web:2") {
			return fmt.Errorf("no Event shows the diff: %q", events)
		}
		return nil
	})
	if is := objects(t, m1, ns)["deployments/web"]; is.GetResourceVersion() != there.GetResourceVersion() {
		t.Errorf("a refused object was written to: %v", is.GetManagedFields())
	}
	samePods(t, m1, ns, running)

	labtest.MustKubectl(t, endpoint, marked, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if c := condition(ctx, t, ns, "web-deployment", "Adopted"); !strings.Contains(c, "True") {
			return fmt.Errorf("Adopted: %s", c)
		}
		if u := objects(t, m1, ns)["deployments/web"]; !ours(u) || u.GetUID() != there.GetUID() {
			return fmt.Errorf("not taken over: %v", u.GetManagedFields())
		}
		return nil
	})
	samePods(t, m1, ns, running)
	dropFrom(t, ns, "deployments/web", `{"metadata":{"labels":{"dropped":null}}}`)
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if u := objects(t, m1, ns)["deployments/web"]; u.GetLabels()["dropped"] != "" {
			return fmt.Errorf("the label stays: %v", u.GetManagedFields())
		}
		return nil
	})
	samePods(t, m1, ns, running)
}

// condition of a binding, as "STATUS REASON MESSAGE".
func condition(ctx context.Context, t testing.TB, ns, binding, kind string) string {
	t.Helper()
	u, err := dynamicOf(t, world.System).Resource(bindings).Namespace(ns).Get(ctx, binding, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m["status"], " ", m["reason"], " ", m["message"])
		}
	}
	return fmt.Sprintf("no condition %s in %v", kind, list)
}
