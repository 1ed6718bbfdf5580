package propagation

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var getNow = metav1.GetOptions{}

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 4
  maxReplicas: 20
`

// scaleIn plays the member's autoscaler: it sets the number by the scale
// subresource.
func scaleIn(t *testing.T, client kubernetes.Interface, ns string, n int32) {
	t.Helper()
	labtest.Eventually(t, 10*time.Second, func(ctx context.Context) error {
		s, err := client.AppsV1().Deployments(ns).GetScale(ctx, "web", getNow)
		if err != nil {
			return err
		}
		s.Spec.Replicas = n
		_, err = client.AppsV1().Deployments(ns).UpdateScale(ctx, "web", s, metav1.UpdateOptions{FieldManager: "horizontal-pod-autoscaler"})
		return err
	})
}

// An autoscaler takes the replicas over and gives them back, and nobody ever
// sees a number that neither of the two has said.
func TestAutoscalerHandOver(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	o := observe(t, ns)
	direct := members(t)
	kubectl(t, divided(1, 1, 0), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(6, "{maxSurge: 1, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	o.settled(map[string]int32{"m1": 3, "m2": 3})
	o.reset()

	kubectl(t, autoscaler, "-n", ns, "apply", "-f", "-")
	for _, name := range []string{"m1", "m2"} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			h, err := direct[name].AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web", getNow)
			if err != nil {
				return err
			}
			if *h.Spec.MinReplicas != 2 || h.Spec.MaxReplicas != 10 {
				return fmt.Errorf("bounds %d to %d in %s, want 2 to 10", *h.Spec.MinReplicas, h.Spec.MaxReplicas, name)
			}
			return nil
		})
	}
	if h, err := direct["m3"].AutoscalingV2().HorizontalPodAutoscalers(ns).Get(t.Context(), "web", getNow); err == nil {
		t.Errorf("the autoscaler is in m3 (%v), the workload is not", h.Spec)
	}
	// A change of the content makes its manager let go of the replicas.
	kubectl(t, "", "-n", ns, "label", "deployment/web", "round=1")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		owners, err := ownersOfReplicas(ctx, direct["m1"], ns)
		if err == nil && !slices.Equal(owners, []string{"isthmus-replicas"}) {
			err = fmt.Errorf("replicas are claimed by %v", owners)
		}
		return err
	})
	scaleIn(t, direct["m1"], ns, 7)
	for round := range 4 {
		kubectl(t, "", "-n", ns, "label", "deployment/web", "--overwrite", fmt.Sprintf("round=%d", round+2))
		time.Sleep(2 * time.Second)
	}
	o.settled(map[string]int32{"m1": 7, "m2": 3})
	if h := o.history("m1"); !slices.Equal(h, []int32{3, 7}) {
		t.Errorf("replicas in m1 went %v, want 3, 7", h)
	}
	if h := o.history("m2"); !slices.Equal(h, []int32{3}) {
		t.Errorf("replicas in m2 went %v, want 3", h)
	}
	brokenAutoscaler(t, direct["m1"], ns)
	time.Sleep(3 * time.Second)

	kubectl(t, "", "-n", ns, "delete", "hpa/web")
	o.settled(map[string]int32{"m1": 3, "m2": 3})
	owners, err := ownersOfReplicas(t.Context(), direct["m1"], ns)
	if err != nil || !slices.Equal(owners, []string{"isthmus-replicas"}) {
		t.Errorf("replicas are claimed by %v (%v)", owners, err)
	}
	fewest, _ := o.extremes()
	t.Logf("m1 %v, m2 %v, never under %d available", o.history("m1"), o.history("m2"), fewest)
	for _, n := range o.history("m1") {
		if n < 3 {
			t.Errorf("replicas in m1 went %v: %d is neither of both", o.history("m1"), n)
		}
	}
	if fewest < 6 {
		t.Errorf("only %d Pods were available at a time", fewest)
	}
}

// brokenAutoscaler reports that nothing is wanted, as one without metrics does.
func brokenAutoscaler(t *testing.T, client kubernetes.Interface, ns string) {
	t.Helper()
	labtest.Eventually(t, 10*time.Second, func(ctx context.Context) error {
		h, err := client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "web", getNow)
		if err != nil {
			return err
		}
		h.Status.CurrentReplicas, h.Status.DesiredReplicas = 7, 0
		h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: "False", Reason: "FailedGetResourceMetric"}}
		_, err = client.AutoscalingV2().HorizontalPodAutoscalers(ns).UpdateStatus(ctx, h, metav1.UpdateOptions{})
		return err
	})
}
