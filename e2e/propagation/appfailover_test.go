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

// slow is longer than a member's controllers ever back off.
const slow = 3 * time.Minute

// oneCluster places web whole in one cluster, with failover of the application.
func oneCluster(failover string) string {
	return policyOver("  failover: {application: {decisionConditions: {tolerationSeconds: 3}, " + failover + "}}\n" +
		"  placement: {clusterAffinity: {clusterNames: [m1, m2, m3]}, spreadConstraints: [{spreadByField: cluster, maxGroups: 1}], replicaScheduling: {replicaSchedulingType: Divided}}\n")
}

// settled waits until web is ready in one cluster, which it names.
func settled(t *testing.T, ns string) (cluster string) {
	t.Helper()
	labtest.Eventually(t, slow, func(ctx context.Context) error {
		cluster = strings.TrimSuffix(get(t, ns, "resourcebinding/web-deployment", targetsPath), "=4")
		m := members(t)[cluster]
		if m == nil {
			return fmt.Errorf("web is in %q", cluster)
		}
		d, err := m.AppsV1().Deployments(ns).Get(ctx, "web", getNow)
		if err == nil && (d.Status.AvailableReplicas != 4 || d.Status.UpdatedReplicas != 4 || d.Status.ObservedGeneration < d.Generation) {
			err = fmt.Errorf("%s has %d available", cluster, d.Status.AvailableReplicas)
		}
		return err
	})
	return cluster
}

// sicken makes new Pods of web impossible in one cluster.
func sicken(t *testing.T, ns, cluster string) {
	t.Helper()
	kubectl(t, fmt.Sprintf(`
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: nowhere}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - targetCluster: {clusterNames: [%s]}
    overriders: {plaintext: [{path: /spec/template/spec/nodeSelector, operator: add, value: {nowhere: "true"}}]}
`, cluster), "-n", ns, "apply", "-f", "-")
}

// fallsIll has web of four replicas settle in one cluster, under a policy of
// failover, and makes it fail there.
func fallsIll(t *testing.T, failover string) (ns, from string) {
	t.Helper()
	ns = labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, oneCluster(failover), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 4), "-n", ns, "apply", "-f", "-")
	from = settled(t, ns)
	sicken(t, ns, from)
	return ns, from
}

// ready Pods of web over all clusters, in copies that are there.
func readyOf(ctx context.Context, t *testing.T, ns string) (ready int32, shown string, err error) {
	t.Helper()
	for name, m := range members(t) {
		d, err := m.AppsV1().Deployments(ns).Get(ctx, "web", getNow)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return 0, "", fmt.Errorf("web in %s: %w", name, err)
		}
		ready += d.Status.AvailableReplicas
		shown += fmt.Sprintf(" %s=%d/%d", name, d.Status.AvailableReplicas, *d.Spec.Replicas)
	}
	return ready, shown, nil
}

func copyGone(ctx context.Context, t *testing.T, ns, cluster string) error {
	t.Helper()
	if _, err := members(t)[cluster].AppsV1().Deployments(ns).Get(ctx, "web", getNow); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the copy in %s: %w", cluster, err)
	}
	return nil
}

const (
	tasksPath = `{range .spec.gracefulEvictionTasks[*]}{.fromCluster} {.purgeMode} {.reason} {.suppressDeletion}{end}`
	leftPath  = `{.metadata.annotations.isthmus\.dev/left-clusters}`
)

// An application that fails in one cluster moves to another with what it has to
// know, the old copy goes when the new one is healthy and not one Pod earlier,
// and it does not go back. Never leaves the old copy until somebody says so, and
// Directly does not wait.
func TestApplicationFailover(t *testing.T) {
	t.Run("gracefully", func(t *testing.T) { t.Parallel(); movesGracefully(t) })
	t.Run("never", func(t *testing.T) { t.Parallel(); movesAndStays(t) })
	t.Run("directly", func(t *testing.T) { t.Parallel(); movesDirectly(t) })
	t.Run("nowhere", func(t *testing.T) { t.Parallel(); staysWithoutAReplacement(t) })
}

func movesGracefully(t *testing.T) {
	ns, from := fallsIll(t, "purgeMode: Graciously, gracePeriodSeconds: 180, statePreservation: {rules: [{aliasLabelName: failover.example.com/replicas, jsonPath: '{.replicas}'}]}")
	// The rollout in the sick cluster may take down one of four, and no more.
	labtest.Eventually(t, slow, func(ctx context.Context) error {
		ready, shown, err := readyOf(ctx, t, ns)
		if err == nil && ready < 3 {
			t.Fatalf("only %d are ready:%s; %s", ready, shown, get(t, ns, "resourcebinding/web-deployment", "{.spec}"))
		}
		if err != nil {
			return err
		}
		return copyGone(ctx, t, ns, from)
	})
	to := settled(t, ns)
	if to == from {
		t.Fatalf("web is in %s as before", to)
	}
	d, err := members(t)[to].AppsV1().Deployments(ns).Get(t.Context(), "web", getNow)
	if err != nil || d.Labels["failover.example.com/replicas"] == "" {
		t.Errorf("the new copy is not told what the old one had: %v, %v", d.Labels, err)
	}
	eventually(t, ns, "resourcebinding/web-deployment", tasksPath, "")
	if left := get(t, ns, "resourcebinding/web-deployment", leftPath); !strings.Contains(left, `"`+from+`"`) {
		t.Errorf("nothing keeps web from going back: %q", left)
	}
	labtest.Eventually(t, slow, func(context.Context) error {
		if out := kubectl(t, "", "-n", ns, "get", "events", "-o", "jsonpath={.items[*].reason}"); !strings.Contains(out, "EvictWorkloadFromCluster") {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	})
	// A new content may use the cluster again, and is placed there by nobody.
	kubectl(t, "", "-n", ns, "delete", "overridepolicy", "nowhere")
	kubectl(t, "", "-n", ns, "patch", "deployment", "web", "--type=merge", "-p", `{"spec":{"minReadySeconds":0,"template":{"metadata":{"annotations":{"again":"yes"}}}}}`)
	if again := settled(t, ns); again != to {
		t.Errorf("web went from %s to %s", to, again)
	}
}

func movesAndStays(t *testing.T) {
	ns, from := fallsIll(t, "purgeMode: Never")
	labtest.Eventually(t, slow, func(context.Context) error {
		if got := get(t, ns, "resourcebinding/web-deployment", tasksPath); got != from+" Never ApplicationFailure true" {
			return fmt.Errorf("tasks %q; %s", got, get(t, ns, "resourcebinding/web-deployment", "{.status.conditions}"))
		}
		return nil
	})
	if to := settled(t, ns); to == from {
		t.Fatalf("web is in %s as before", to)
	}
	if d, err := members(t)[from].AppsV1().Deployments(ns).Get(t.Context(), "web", getNow); err != nil || *d.Spec.Replicas != 4 {
		t.Fatalf("the copy that was to stay: %v, %v", d.Spec.Replicas, err)
	}
	kubectl(t, "", "-n", ns, "patch", "resourcebinding", "web-deployment", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/gracefulEvictionTasks/0/suppressDeletion","value":false}]`)
	labtest.Eventually(t, slow, func(ctx context.Context) error { return copyGone(ctx, t, ns, from) })
}

func movesDirectly(t *testing.T) {
	ns, from := fallsIll(t, "purgeMode: Immediately")
	labtest.Eventually(t, slow, func(ctx context.Context) error { return copyGone(ctx, t, ns, from) })
	if to := settled(t, ns); to == from {
		t.Errorf("web is in %s as before", to)
	}
}

// Where every cluster has the whole workload already, taking a copy away that is
// unhealthy in part would be a removal and no move.
func staysWithoutAReplacement(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver("  failover: {application: {decisionConditions: {tolerationSeconds: 1}}}\n  placement: {clusterAffinity: {clusterNames: [m1, m2]}}\n"), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 4), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m1=4 m2=4")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=170s")
	sicken(t, ns, "m1")
	labtest.Eventually(t, slow, func(context.Context) error {
		if why := get(t, ns, "resourcebinding/web-deployment", `{.status.conditions[?(@.type=="Scheduled")].message}`); !strings.Contains(why, "m1: the application fails there, and no other") {
			return fmt.Errorf("the binding says %q; targets %s", why, get(t, ns, "resourcebinding/web-deployment", targetsPath))
		}
		return nil
	})
	runsIn(t, ns, "web", "m1=4 m2=4")
}
