package propagation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A deleted namespace takes along what was made through the endpoint, bare Pods
// included; a cluster that has a workload of its own in it keeps that.
func TestNamespaceDeletion(t *testing.T) {
	ns := labtest.UniqueName(t, "going")
	kubectl(t, "", "create", "namespace", ns)
	kubectl(t, divided(1, 1, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(3, "{maxSurge: 1, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "run", "bare", "--image=registry.example.com/web:1", "--labels=isthmus.dev/cluster=m1")
	m3 := world.Member("m3").Kubeconfig()
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		for _, client := range members(t) {
			if _, err := client.AppsV1().Deployments(ns).Get(ctx, "web", getNow); err != nil {
				return err
			}
		}
		return nil
	})
	labtest.MustKubectl(t, m3, "", "-n", ns, "create", "deployment", "own", "--image=registry.example.com/own:1")
	t.Cleanup(func() { labtest.Kubectl(t, m3, "", "delete", "namespace", ns, "--wait=false") })

	kubectl(t, "", "delete", "namespace", ns, "--timeout=150s")
	direct := members(t)
	for _, name := range []string{"m1", "m2"} {
		if _, err := direct[name].CoreV1().Namespaces().Get(t.Context(), ns, getNow); !apierrors.IsNotFound(err) {
			t.Errorf("the namespace has gone before the one in %s: %v", name, err)
		}
	}
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		if _, err := direct["m3"].AppsV1().Deployments(ns).Get(ctx, "web", getNow); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the copy in m3: %v", err)
		}
		own, err := direct["m3"].AppsV1().Deployments(ns).Get(ctx, "own", getNow)
		if err != nil {
			return err
		}
		if own.DeletionTimestamp != nil {
			return errors.New("m3's own Deployment is being deleted")
		}
		return nil
	})
	events := kubectl(t, "", "get", "events", "-A", "--field-selector=reason=NamespaceKept,involvedObject.name="+ns)
	if !strings.Contains(events, "m3") || !strings.Contains(events, "own") {
		t.Errorf("no Event tells that m3 keeps the namespace:\n%s", events)
	}
}
