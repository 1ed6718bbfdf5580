package outage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const policyOnM3 = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: isolation}
spec:
  resourceSelectors: [{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy}]
  placement: {clusterAffinity: {clusterNames: [m3]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolation}
spec: {podSelector: {}}
`

// settles is how long a condition may take on a machine that is busy.
const settles = 3 * time.Minute

// A member whose API answers, but whose watches are open and say nothing: what
// is changed arrives there all the same. While nobody knows its autoscalers, the
// replicas in it stay as they are, and nothing else waits.
func TestSilentWatches(t *testing.T) {
	injector, kubeconfig := beforeM3(t)
	injector.Set(func(r *http.Request) lab.Fault {
		switch {
		case !strings.HasPrefix(r.UserAgent(), "isthmus-engine"):
		case strings.HasSuffix(r.URL.Path, "/horizontalpodautoscalers"):
			return lab.Fault{Injection: lab.LoseRequest, Hang: 5 * time.Second}
		case strings.HasSuffix(r.URL.Path, "/networkpolicies") && r.URL.Query().Get("watch") != "":
			return lab.Fault{Injection: lab.Silence}
		}
		return lab.Fault{}
	})
	joinM3By(t, kubeconfig)
	awaitLive(t, "m3")
	ns := endpointNamespace(t, "silent")
	admin := world.System.Kubeconfig()
	begin := time.Now()
	labtest.MustKubectl(t, admin, onM3+"---"+policyOnM3, "-n", ns, "apply", "-f", "-")
	awaitDeployment(t, ns, "registry.example.com/web:1", 3)
	t.Logf("a Deployment arrived after %s, its autoscalers are not known", time.Since(begin).Round(time.Millisecond))

	autoscale(t, ns, 5)
	begin = time.Now()
	labtest.MustKubectl(t, admin, "", "-n", ns, "set", "image", "deployment/web", "web=registry.example.com/web:2")
	awaitDeployment(t, ns, "registry.example.com/web:2", 5)
	t.Logf("its change arrived after %s", time.Since(begin).Round(time.Millisecond))

	policies := labtest.Client(t, world.m3).NetworkingV1().NetworkPolicies(ns)
	labtest.Eventually(t, settles, func(ctx context.Context) error {
		_, err := policies.Get(ctx, "isolation", metav1.GetOptions{})
		return err
	})
	t.Logf("what is watched silently arrived after %s more, injected: %v", time.Since(begin).Round(time.Second), injector.Counts())
	if injector.Counts()[lab.Silence.String()] == 0 {
		t.Error("no watch was silent")
	}
	awaitDeployment(t, ns, "registry.example.com/web:2", 5)

	injector.Set(nil)
	if err := labtest.Client(t, world.m3).AutoscalingV2().HorizontalPodAutoscalers(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	awaitDeployment(t, ns, "registry.example.com/web:2", 3)
	t.Logf("without the autoscaler the replicas are the template's after %s", time.Since(begin).Round(time.Second))
}

// beforeM3 puts an injector before m3; it lives until m3 has left.
func beforeM3(t *testing.T) (i *lab.Injector, kubeconfig string) {
	t.Helper()
	i, err := lab.NewInjector(world.m3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	kubeconfig, err = i.Kubeconfig(t.Context(), world.m3, i.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return i, kubeconfig
}

// autoscale makes an autoscaler of the member's own, and plays it once.
func autoscale(t *testing.T, ns string, n int32) {
	t.Helper()
	client := labtest.Client(t, world.m3)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 9,
		},
	}
	if _, err := client.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, settles, func(ctx context.Context) error {
		s, err := client.AppsV1().Deployments(ns).GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Spec.Replicas = n
		_, err = client.AppsV1().Deployments(ns).UpdateScale(ctx, "web", s, metav1.UpdateOptions{FieldManager: "horizontal-pod-autoscaler"})
		return err
	})
}

// awaitDeployment waits until web in m3 is as it should be.
func awaitDeployment(t *testing.T, ns, image string, replicas int32) {
	t.Helper()
	client := labtest.Client(t, world.m3)
	labtest.Eventually(t, settles, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return deviation(d, image, replicas)
	})
}

func deviation(d *appsv1.Deployment, image string, replicas int32) error {
	if d.Spec.Replicas == nil {
		return errors.New("no replicas")
	}
	if got := d.Spec.Template.Spec.Containers[0].Image; got != image || *d.Spec.Replicas != replicas {
		return fmt.Errorf("%d of %s, want %d of %s", *d.Spec.Replicas, got, replicas, image)
	}
	return nil
}
