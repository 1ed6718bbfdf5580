package propagation

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	quotaOfPods = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: limit}
spec: {hard: {pods: "10", configmaps: "20"}}
`
	quotaOfCPU = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: limit}
spec: {hard: {requests.cpu: "1"}}
`
)

// Ten Pods, seven and three, fit in a quota of ten: its shares follow them. An
// eleventh is refused as on one cluster. At no moment do the members together
// allow more than ten.
func TestQuotaIsDivided(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	sum := watchLimits(t, ns, "limit", corev1.ResourcePods)
	kubectl(t, quotaOfPods, "-n", ns, "apply", "-f", "-")
	waitLimits(t, ns, corev1.ResourceConfigMaps, map[string]string{"m1": "20", "m2": "20", "m3": "20"})
	kubectl(t, divided(7, 3, 0), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(10, "{maxSurge: 0, maxUnavailable: 1}"), "-n", ns, "apply", "-f", "-")
	// A member's controller that was refused before the share came tries again
	// ever more rarely.
	endpoint := labtest.Client(t, world.System)
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		d, err := endpoint.AppsV1().Deployments(ns).Get(ctx, "web", getNow)
		if err == nil && d.Status.ReadyReplicas != 10 {
			err = fmt.Errorf("%d of 10 are ready; %s", d.Status.ReadyReplicas, inMembers(t, ns))
		}
		return err
	})
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout", "60s")
	waitLimits(t, ns, corev1.ResourcePods, map[string]string{"m1": "7", "m2": "3", "m3": "0"})
	waitUsed(t, ns, corev1.ResourcePods, "10")
	refused := func() {
		t.Helper()
		result := labtest.Kubectl(t, world.System.Kubeconfig(), "", "-n", ns, "run", "eleventh", "--image", "registry.example.com/app:1")
		if result.Code == 0 || !strings.Contains(result.Err, "exceeded quota: limit, requested: pods=1, used: pods=10, limited: pods=10") {
			t.Fatalf("an eleventh Pod: %d: %s", result.Code, result.Err)
		}
	}
	refused()

	// The replicas change sides: the limits do, the smaller first.
	kubectl(t, divided(2, 0, 8), "-n", ns, "apply", "-f", "-")
	waitLimits(t, ns, corev1.ResourcePods, map[string]string{"m1": "2", "m2": "0", "m3": "8"})
	waitUsed(t, ns, corev1.ResourcePods, "10")
	refused()
	if worst := sum(); worst > 10 {
		t.Errorf("at a moment the members allowed %d Pods", worst)
	}
}

// A single Pod that is larger than any share finds room, because the whole has
// it; the next one does not.
func TestQuotaMakesRoom(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	sum := watchLimits(t, ns, "limit", corev1.ResourceRequestsCPU)
	kubectl(t, quotaOfCPU, "-n", ns, "apply", "-f", "-")
	pod := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, image: "registry.example.com/app:1", resources: {requests: {cpu: 700m}}}]}
`, name)
	}
	kubectl(t, pod("large"), "-n", ns, "create", "-f", "-")
	result := labtest.Kubectl(t, world.System.Kubeconfig(), pod("another"), "-n", ns, "create", "-f", "-")
	if result.Code == 0 || !strings.Contains(result.Err, "exceeded quota: limit") {
		t.Fatalf("more than the quota: %d: %s", result.Code, result.Err)
	}
	waitUsed(t, ns, corev1.ResourceRequestsCPU, "700m")
	if worst := sum(); worst > 1000 {
		t.Errorf("at a moment the members allowed %dm", worst)
	}
}

func waitLimits(t *testing.T, ns string, name corev1.ResourceName, want map[string]string) {
	t.Helper()
	direct := members(t)
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		got := map[string]string{}
		for cluster, client := range direct {
			q, err := client.CoreV1().ResourceQuotas(ns).Get(ctx, "limit", getNow)
			if err != nil {
				return err
			}
			limit := q.Spec.Hard[name]
			got[cluster] = limit.String()
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("%s %v, want %v", name, got, want)
		}
		return nil
	})
}

func waitUsed(t *testing.T, ns string, name corev1.ResourceName, want string) {
	t.Helper()
	client := labtest.Client(t, world.System)
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		q, err := client.CoreV1().ResourceQuotas(ns).Get(ctx, "limit", getNow)
		if err != nil {
			return err
		}
		if used := q.Status.Used[name]; used.String() != want {
			return fmt.Errorf("%s: %s is used, want %s", name, used.String(), want)
		}
		return nil
	})
}

// watchLimits returns the largest sum, in thousandths where it is of cores, of
// what the members allowed so far, as far as it was seen.
func watchLimits(t *testing.T, ns, quota string, name corev1.ResourceName) func() int64 {
	t.Helper()
	var mu sync.Mutex
	now, worst := map[string]int64{}, int64(0)
	for cluster, client := range members(t) {
		watchQuotas(t, client, ns, func(q *corev1.ResourceQuota) {
			limit := q.Spec.Hard[name]
			n := limit.Value()
			if name == corev1.ResourceRequestsCPU {
				n = limit.MilliValue()
			}
			if q.Name != quota {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			now[cluster] = n
			var sum int64
			for _, n := range now {
				sum += n
			}
			worst = max(worst, sum)
		})
	}
	return func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return worst
	}
}

func watchQuotas(t *testing.T, client kubernetes.Interface, ns string, seen func(*corev1.ResourceQuota)) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().ResourceQuotas().Informer()
	show := func(obj any) {
		if q, ok := obj.(*corev1.ResourceQuota); ok {
			seen(q)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, obj any) { show(obj) }})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("quotas of a member cannot be watched")
	}
}

const threeOfTwo = `
apiVersion: v1
kind: ReplicationController
metadata: {name: rc}
spec:
  replicas: 3
  selector: {app: rc}
  template:
    metadata: {labels: {app: rc}}
    spec: {containers: [{name: c, image: "registry.example.com/app:1"}]}
`

// What does not fit is told, and no longer when it fits.
func TestQuotaConditionComesAndGoes(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, strings.Replace(quotaOfPods, `pods: "10", configmaps: "20"`, `pods: "2"`, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, threeOfTwo, "-n", ns, "create", "-f", "-")
	wait := func(present bool) {
		t.Helper()
		// The member's controller tries again ever more rarely.
		labtest.Eventually(t, 3*time.Minute, func(context.Context) error {
			got := kubectl(t, "", "-n", ns, "get", "rc", "rc", "-o", `jsonpath={.status.conditions[?(@.type=="ReplicaFailure")].message}`)
			if strings.Contains(got, "exceeded quota: limit") != present {
				return fmt.Errorf("condition ReplicaFailure: %q; %s", got, inMembers(t, ns))
			}
			return nil
		})
	}
	wait(true)
	kubectl(t, "", "-n", ns, "scale", "rc", "rc", "--replicas", "2")
	wait(false)
	waitUsed(t, ns, corev1.ResourcePods, "2")
}

// inMembers tells the shares and what workloads have come to, for a failure.
func inMembers(t *testing.T, ns string) string {
	t.Helper()
	var out strings.Builder
	for cluster, client := range members(t) {
		q, err := client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "limit", getNow)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v; ", cluster, err)
			continue
		}
		fmt.Fprintf(&out, "%s: told %s, enforced %s, used %s", cluster, q.Spec.Hard.Pods(), q.Status.Hard.Pods(), q.Status.Used.Pods())
		if list, err := client.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{}); err == nil {
			for _, rs := range list.Items {
				fmt.Fprintf(&out, ", %s has %d of %d", rs.Name, rs.Status.Replicas, *rs.Spec.Replicas)
			}
		}
		out.WriteString("; ")
	}
	return out.String()
}
