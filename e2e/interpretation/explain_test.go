package interpretation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// explained runs the subcommand.
func explained(t testing.TB, args ...string) string {
	t.Helper()
	out, err := world.System.Command(t.Context(), append([]string{"explain", "--kubeconfig", world.System.Kubeconfig()}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

func TestExplain(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: shop}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: tags}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  overrideRules: [{targetCluster: {clusterNames: [m1]}, overriders: {imageOverrider: [{component: Tag, operator: replace, value: "2"}]}}]
`, "-n", ns, "apply", "-f", "-")
	kubectl(t, shop(ns, "labels: {tier: web}"), "apply", "-f", "-")
	comesTo(t, world.Member("m1").Kubeconfig(), "registry.example.com/shop:2", "-n", ns, "get", "deployment", "shop", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		said := explained(t, "deploy/shop", "-n", ns)
		for _, want := range []string{
			"deployment.apps/shop in namespace " + ns,
			"PropagationPolicy " + ns + "/shop (by name)", "also matches: ClusterPropagationPolicy isthmus-default-",
			"2 replicas in 1 of 2 clusters", "m1  2 replicas, applied, healthy", "m2  excluded: not selected by clusterAffinity",
			"m1: OverridePolicy " + ns + "/tags: spec.template.spec.containers[shop].image becomes registry.example.com/shop:2 instead of registry.example.com/shop:1",
			"FullyApplied True",
		} {
			if !strings.Contains(said, want) {
				return fmt.Errorf("%q is not in:\n%s", want, said)
			}
		}
		if strings.Contains(said, "Differences") {
			return fmt.Errorf("nothing differs: %s", said)
		}
		return nil
	})
	said := explained(t, "deployments.apps", "shop", "-n", ns, "-o", "yaml")
	if !strings.HasPrefix(said, "---\n# m1\napiVersion: apps/v1\n") || !strings.Contains(said, "image: registry.example.com/shop:2") || strings.Contains(said, "isthmus.dev") {
		t.Errorf("what m1 is told: %s", said)
	}
	if said := explained(t, "configmap/kube-root-ca.crt", "-n", ns); !strings.Contains(said, "never propagated: ") {
		t.Errorf("kube-root-ca.crt: %s", said)
	}
	// On hold, a difference stays and is shown.
	kubectl(t, "", "-n", ns, "annotate", "deployment", "shop", "isthmus.dev/hold=upkeep")
	kubectl(t, "", "-n", ns, "scale", "deployment", "shop", "--replicas=3")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		said := explained(t, "deployment/shop", "-n", ns)
		for _, want := range []string{"m1: spec.replicas is 2, wanted 3", "Held True (TemplateOnHold)"} {
			if !strings.Contains(said, want) {
				return fmt.Errorf("%q is not in:\n%s", want, said)
			}
		}
		return nil
	})
	kubectl(t, "", "-n", ns, "annotate", "deployment", "shop", "isthmus.dev/hold-")
	if out, err := world.System.Command(t.Context(), "explain", "--kubeconfig", world.System.Kubeconfig(), "deployment"); err == nil || !strings.Contains(out+err.Error(), "KIND/NAME") {
		t.Errorf("without a name: %v: %s", err, out)
	}
}
