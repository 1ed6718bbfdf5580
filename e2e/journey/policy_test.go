package journey

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const webDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

const weightsPolicy = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: weights}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    clusterAffinity: {clusterNames: [m1, m2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [m1]}, weight: 1}
        - {targetCluster: {clusterNames: [m2]}, weight: 2}
`

// Weights 1:2 divide 6 replicas into 2 and 4, and 9 into 3 and 6.
func TestPolicyWeights(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	labtest.MustKubectl(t, endpoint, weightsPolicy, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, endpoint, webDeployment, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	waitPods(t, ns, map[string]int{"m1": 2, "m2": 4})
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "scale", "deployment/web", "--replicas=9")
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	waitPods(t, ns, map[string]int{"m1": 3, "m2": 6})
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "delete", "deployment/web")
	waitPods(t, ns, map[string]int{})
	for _, member := range []kubernetes.Interface{labtest.Client(t, world.m1), labtest.Client(t, world.m2)} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			left, err := member.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if len(left.Items) > 0 {
				return fmt.Errorf("%d Deployments are left in a member", len(left.Items))
			}
			return nil
		})
	}
}

// waitPods waits until the running Pods per cluster are as wanted, by the label
// that the endpoint serves and by what the members themselves hold.
func waitPods(t *testing.T, ns string, want map[string]int) {
	t.Helper()
	endpoint := labtest.Client(t, world.System)
	members := map[string]kubernetes.Interface{"m1": labtest.Client(t, world.m1), "m2": labtest.Client(t, world.m2)}
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		served, held := map[string]int{}, map[string]int{}
		pods, err := endpoint.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if lives(&pod) {
				served[pod.Labels["isthmus.dev/cluster"]]++
			}
		}
		for name, client := range members {
			pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, pod := range pods.Items {
				if lives(&pod) {
					held[name]++
				}
			}
		}
		if !maps.Equal(served, want) || !maps.Equal(held, want) {
			return fmt.Errorf("running Pods served %v, held %v, want %v", served, held, want)
		}
		return nil
	})
}

func lives(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}
