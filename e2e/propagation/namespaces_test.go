package propagation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const tenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAME, labels: {namespace.karmada.io/skip-auto-propagation: "true"}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: settings, namespace: NAME}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NAME}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: kube-system}
data: {a: b}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: NAME, namespace: kube-system}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: NAME}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
`

// A namespace is made only where it is needed, if it says so; one that goes in
// a member comes back with what belongs in it; what is never propagated although
// a policy names it is told.
func TestNamespacesOfTenants(t *testing.T) {
	t.Parallel()
	endpoint, ns := world.System.Kubeconfig(), labtest.NamespaceName(t)
	text := strings.ReplaceAll(tenant, "NAME", ns)
	kubectl(t, text, "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, endpoint, text, "delete", "--wait=false", "-f", "-") })
	direct := members(t)
	var first string
	inPlace := func(ctx context.Context) error {
		c, err := direct["m1"].CoreV1().ConfigMaps(ns).Get(ctx, "settings", getNow)
		if err == nil && (c.DeletionTimestamp != nil || string(c.UID) == first) {
			err = fmt.Errorf("the ConfigMap of before is still there")
		}
		if err == nil {
			first = string(c.UID)
		}
		return err
	}
	labtest.Eventually(t, 40*time.Second, inPlace)
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		events := kubectl(t, "", "-n", "kube-system", "get", "events", "--field-selector=type=Warning,involvedObject.kind=ConfigMap,involvedObject.name="+ns)
		if !strings.Contains(events, "NeverPropagated") || !strings.Contains(events, "reserved") {
			return fmt.Errorf("no Warning says that kube-system is reserved:\n%s", events)
		}
		return nil
	})
	if err := direct["m1"].CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, time.Minute, inPlace)
	for _, name := range []string{"m2", "m3"} {
		if _, err := direct[name].CoreV1().Namespaces().Get(t.Context(), ns, getNow); !apierrors.IsNotFound(err) {
			t.Errorf("the namespace in %s, where nothing of it is needed: %v", name, err)
		}
	}
	if _, err := direct["m1"].CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), ns, getNow); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap in kube-system of m1: %v", err)
	}
}

// Where the policy preserves them, copies of what is deleted stay: they keep
// their Pods and lose our marks.
func TestDeletionThatLeavesCopies(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	direct := members(t)
	kubectl(t, policyOver("  preserveResourcesOnDeletion: true\n  placement: {clusterAffinity: {clusterNames: [m1]}}\n"), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("stays", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/stays", "--timeout=150s")
	podsOf := func() string {
		return labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "-n", ns, "get", "pods", "-l", "app=stays", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := podsOf()
	kubectl(t, "", "-n", ns, "delete", "deployment", "stays", "--timeout=150s")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		d, err := direct["m1"].AppsV1().Deployments(ns).Get(ctx, "stays", getNow)
		if err != nil {
			return err
		}
		for _, marks := range []map[string]string{d.Labels, d.Annotations} {
			for k := range marks {
				if strings.HasPrefix(k, "isthmus.dev/") || strings.Contains(k, "karmada.io/") {
					return fmt.Errorf("the copy keeps the mark %s", k)
				}
			}
		}
		return nil
	})
	if after := podsOf(); after != before || before == "" {
		t.Errorf("Pods %q became %q", before, after)
	}
}

// A copy that is gone where nothing is to be written is not counted, and does
// not hold up the deletion of its template.
func TestCopyThatIsGoneIsNotCounted(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	const placement = "  placement: {clusterAffinity: {clusterNames: [m1, m2]}}\n"
	kubectl(t, policyOver(placement), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	eventually(t, ns, "deployment/web", "{.status.readyReplicas}", "2")
	kubectl(t, policyOver("  preserveResourcesOnDeletion: true\n  suspension: {dispatchingOnClusters: {clusterNames: [m2]}}\n"+placement), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "resourcebinding/web-deployment", "{.spec.suspension.dispatchingOnClusters.clusterNames[0]}", "m2")
	if err := members(t)["m2"].AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, ns, "deployment/web", "{.status.readyReplicas}/{.status.replicas}", "1/1")
	eventually(t, ns, "resourcebinding/web-deployment", `{.status.conditions[?(@.type=="FullyApplied")].message}`, "m2: dispatching is suspended")
	kubectl(t, "", "-n", ns, "delete", "deployment", "web", "--timeout=150s")
	if d, err := members(t)["m1"].AppsV1().Deployments(ns).Get(t.Context(), "web", getNow); err != nil || d.DeletionTimestamp != nil {
		t.Errorf("the copy in m1 did not stay: %v", err)
	}
}
