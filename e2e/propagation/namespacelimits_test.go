package propagation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// Whatever policies say, what is in a limited namespace stays in its clusters:
// templates, Pods of one's own, and the namespace itself. Who may not limit
// namespaces cannot change that, and a cluster that is taken out is left.
func TestNamespaceIsLimitedToClusters(t *testing.T) {
	endpoint := world.System.Kubeconfig()
	ns := labtest.NamespaceName(t)
	kubectl(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{"isthmus.dev/clusters":"m1, m2"}}}`, ns), "create", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, endpoint, "", "delete", "namespace", ns, "--wait=false") })
	kubectl(t, divided(1, 1, 2), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(4, "{maxSurge: 1, maxUnavailable: 1}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "create", "configmap", "settings", "--from-literal=a=b")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout", "90s")
	targets := func() string {
		return kubectl(t, "", "-n", ns, "get", "resourcebinding", "web-deployment", "-o", "jsonpath={range .spec.clusters[*]}{.name}={.replicas} {end}")
	}
	if got := targets(); got != "m1=2 m2=2 " {
		t.Errorf("placed in %q", got)
	}
	for i := range 4 {
		kubectl(t, "", "-n", ns, "run", fmt.Sprintf("own-%d", i), "--image", "registry.example.com/app:1")
	}
	if got := kubectl(t, "", "-n", ns, "get", "pods", "-l", "isthmus.dev/cluster=m3", "-o", "name"); got != "" {
		t.Errorf("in m3 there are %s", got)
	}
	if got := labtest.Kubectl(t, endpoint, "", "-n", ns, "run", "there", "--image", "registry.example.com/app:1", "-l", "isthmus.dev/cluster=m3"); got.Code == 0 || !strings.Contains(got.Err, "is limited to other clusters") {
		t.Errorf("a Pod that names m3: %d: %s", got.Code, got.Err)
	}
	if _, err := members(t)["m3"].CoreV1().Namespaces().Get(t.Context(), ns, getNow); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace in m3: %v", err)
	}
	condition := kubectl(t, "", "-n", ns, "get", "resourcebinding", "web-deployment", "-o", `jsonpath={.status.conditions[?(@.type=="LimitedByNamespace")].message}`)
	if !strings.Contains(condition, "allows m1, m2") {
		t.Errorf("condition %q", condition)
	}

	kubectl(t, "", "create", "clusterrole", ns, "--verb=get,patch", "--resource=namespaces")
	kubectl(t, "", "create", "clusterrolebinding", ns, "--clusterrole="+ns, "--user=jane")
	t.Cleanup(func() {
		kubectl(t, "", "delete", "clusterrolebinding/"+ns, "clusterrole/"+ns)
	})
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		if got := labtest.Kubectl(t, endpoint, "", "--as=jane", "label", "namespace", ns, "team=shop", "--overwrite"); got.Code != 0 {
			return fmt.Errorf("jane may not label: %s", got.Err)
		}
		return nil
	})
	if got := labtest.Kubectl(t, endpoint, "", "--as=jane", "annotate", "namespace", ns, "isthmus.dev/clusters-"); got.Code == 0 || !strings.Contains(got.Err, "takes the verb limit on namespaces") {
		t.Errorf("jane lifts the limit: %d: %s", got.Code, got.Err)
	}

	kubectl(t, "", "annotate", "namespace", ns, "isthmus.dev/clusters=m2", "--overwrite")
	labtest.Eventually(t, 90*time.Second, func(ctx context.Context) error {
		if got := targets(); got != "m2=4 " {
			return fmt.Errorf("placed in %q", got)
		}
		for kind, err := range map[string]error{
			"Deployment": func() error {
				_, err := members(t)["m1"].AppsV1().Deployments(ns).Get(ctx, "web", getNow)
				return err
			}(),
			"ConfigMap": func() error {
				_, err := members(t)["m1"].CoreV1().ConfigMaps(ns).Get(ctx, "settings", getNow)
				return err
			}(),
		} {
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the %s in m1: %v", kind, err)
			}
		}
		return nil
	})
	// What a namespace contains is not the placement's to delete.
	if _, err := members(t)["m1"].CoreV1().Namespaces().Get(t.Context(), ns, getNow); err != nil {
		t.Errorf("the namespace in m1: %v", err)
	}
}
