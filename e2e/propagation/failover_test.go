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

// beforeTheFreeze makes a workload that leaves m3 when m3 is out of reach, and
// one that has nothing to do with m3.
func beforeTheFreeze(t *testing.T) (ns string) {
	t.Helper()
	ns = labtest.Namespace(t, world.System.Kubeconfig())
	for name, spec := range map[string]string{
		"leaves": "  failover: {cluster: {tolerationSeconds: 5}}\n  placement: {clusterAffinity: {clusterNames: [m2, m3]}, replicaScheduling: {replicaSchedulingType: Divided}}\n",
		"near":   "  placement: {clusterAffinity: {clusterNames: [m1]}}\n",
	} {
		policy := strings.NewReplacer("metadata: {name: web}", "metadata: {name: "+name+"}", "kind: Deployment}", "kind: Deployment, name: "+name+"}").Replace(policyOver(spec))
		kubectl(t, policy, "-n", ns, "apply", "-f", "-")
		kubectl(t, app(name, "", "10m", 4), "-n", ns, "apply", "-f", "-")
	}
	runsIn(t, ns, "leaves", "m2=2 m3=2")
	runsIn(t, ns, "near", "m1=4")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/leaves", "--timeout=150s")
	return ns
}

// duringTheFreeze: a deletion does not wait for a cluster that holds no copy, and
// failover moves what it may.
func duringTheFreeze(t *testing.T, ns string) {
	t.Helper()
	kubectl(t, "", "-n", ns, "delete", "deployment", "near", "--timeout=150s")
	labtest.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
		d, err := members(t)["m2"].AppsV1().Deployments(ns).Get(ctx, "leaves", getNow)
		if err == nil && (*d.Spec.Replicas != 4 || d.Status.AvailableReplicas != 4) {
			err = fmt.Errorf("m2 has %d replicas, %d available", *d.Spec.Replicas, d.Status.AvailableReplicas)
		}
		return err
	})
}

// afterTheThaw: the copy that was left behind goes, nothing moves back by itself,
// and a rebalancing uses the cluster again without taking anything down first.
func afterTheThaw(t *testing.T, ns string) {
	t.Helper()
	labtest.Eventually(t, 90*time.Second, func(ctx context.Context) error {
		if _, err := members(t)["m3"].AppsV1().Deployments(ns).Get(ctx, "leaves", getNow); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the copy that m3 held during the outage: %v", err)
		}
		return nil
	})
	runsIn(t, ns, "leaves", "m2=4")
	kubectl(t, fmt.Sprintf(`
apiVersion: apps.karmada.io/v1alpha1
kind: WorkloadRebalancer
metadata: {name: %[1]s}
spec:
  ttlSecondsAfterFinished: 5
  workloads: [{apiVersion: apps/v1, kind: Deployment, namespace: %[1]s, name: leaves}]
`, ns), "apply", "-f", "-")
	runsIn(t, ns, "leaves", "m2=2 m3=2")
}

// goesDirectly makes a workload in m3 that goes to m1 when m3 has failed, with
// what it has to know, and returns what shows that.
func goesDirectly(t *testing.T, ns string) (afterTheMove func()) {
	t.Helper()
	policy := policyOver(`  failover: {cluster: {purgeMode: Directly, statePreservation: {rules: [{aliasLabelName: was, jsonPath: '{.replicas}'}]}}}
  placement: {clusterAffinities: [{affinityName: one, clusterNames: [m3]}, {affinityName: two, clusterNames: [m1]}], replicaScheduling: {replicaSchedulingType: Divided}}
`)
	kubectl(t, strings.NewReplacer("metadata: {name: web}", "metadata: {name: told}", "kind: Deployment}", "kind: Deployment, name: told}").Replace(policy), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("told", "", "10m", 2), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "told", "m3=2")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/told", "--timeout=170s")
	return func() {
		runsIn(t, ns, "told", "m1=2")
		d, err := members(t)["m1"].AppsV1().Deployments(ns).Get(t.Context(), "told", getNow)
		if err != nil || d.Labels["was"] != "2" {
			t.Errorf("the copy in m1 is not told what m3 had: %v, %v", d.Labels, err)
		}
	}
}
