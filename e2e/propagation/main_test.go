// Package propagation shows what the engine does with real members: what
// arrives there, in which order, and what comes back.
//
//	TestMain -> m1, m2, m3 (package lab) -> the endpoint, all joined
//	tests    -> kubectl, client-go -> endpoint
//	         -> the members are watched all along
package propagation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name: "propagation", Join: []string{"m1", "m2", "m3"},
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}, {Name: "m3"}},
	}))
}

// kubectl runs against the endpoint.
func kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	return labtest.MustKubectl(t, world.System.Kubeconfig(), stdin, args...)
}

// members are the clients of all members by name.
func members(t testing.TB) map[string]kubernetes.Interface {
	t.Helper()
	out := map[string]kubernetes.Interface{}
	for _, m := range world.Members {
		out[m.Name()] = labtest.Client(t, m)
	}
	return out
}

// divided places everything called web, by weights, in the order of m1, m2, m3;
// a cluster of weight zero is left out.
func divided(weights ...int) string {
	var list, names []string
	for i, w := range weights {
		if name := fmt.Sprintf("m%d", i+1); w > 0 {
			names = append(names, name)
			list = append(list, fmt.Sprintf("{targetCluster: {clusterNames: [%s]}, weight: %d}", name, w))
		}
	}
	return fmt.Sprintf(`
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    clusterAffinity: {clusterNames: [%s]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {staticWeightList: [%s]}
`, strings.Join(names, ", "), strings.Join(list, ", "))
}

// deployment is web with a strategy; its Pods are available two seconds after
// they are ready.
func deployment(replicas int, strategy string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: %d
  minReadySeconds: 2
  strategy: {type: RollingUpdate, rollingUpdate: %s}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1", resources: {requests: {cpu: 10m}}}]}
`, replicas, strategy)
}

// observer sees Deployments and Pods of one namespace in all members.
type observer struct {
	t    testing.TB
	pods map[string]cache.SharedIndexInformer

	mu sync.Mutex
	// spec.replicas of web, every value in order.
	replicas map[string][]int32
	present  map[string]*appsv1.Deployment
	fewest   int // available Pods
	most     int // Pods that are not being deleted
	stop     context.CancelFunc
	done     sync.WaitGroup
}

func observe(t testing.TB, ns string) *observer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	o := &observer{
		t: t, pods: map[string]cache.SharedIndexInformer{}, stop: cancel,
		replicas: map[string][]int32{}, present: map[string]*appsv1.Deployment{},
	}
	for name, client := range members(t) {
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
		see := func(obj any) { o.see(name, obj.(*appsv1.Deployment)) }
		deployments := f.Apps().V1().Deployments().Informer()
		if _, err := deployments.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }, DeleteFunc: func(any) { o.see(name, nil) },
		}); err != nil {
			t.Fatal(err)
		}
		o.pods[name] = f.Core().V1().Pods().Informer()
		f.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), deployments.HasSynced, o.pods[name].HasSynced) {
			t.Fatal("the members cannot be watched")
		}
	}
	o.reset()
	o.done.Go(func() {
		for ctx.Err() == nil {
			o.sample()
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); o.done.Wait() })
	return o
}

func (o *observer) see(member string, d *appsv1.Deployment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.present[member] = d; d == nil {
		o.replicas[member] = append(o.replicas[member], -1)
		return
	}
	if last := o.replicas[member]; len(last) == 0 || last[len(last)-1] != *d.Spec.Replicas {
		o.replicas[member] = append(last, *d.Spec.Replicas)
	}
}

// reset forgets the extremes; every history begins with the present value.
func (o *observer) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fewest, o.most = 1<<30, 0
	for member, d := range o.present {
		o.replicas[member] = nil
		if d != nil {
			o.replicas[member] = []int32{*d.Spec.Replicas}
		}
	}
}

func (o *observer) sample() {
	available, all := 0, 0
	for _, informer := range o.pods {
		objs := informer.GetStore().List()
		for _, obj := range objs {
			pod := obj.(*corev1.Pod)
			if pod.DeletionTimestamp != nil || !labels.SelectorFromSet(labels.Set{"app": "web"}).Matches(labels.Set(pod.Labels)) {
				continue
			}
			all++
			for _, c := range pod.Status.Conditions {
				// One second less than the controllers want, because the time
				// is in seconds.
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && time.Since(c.LastTransitionTime.Time) >= time.Second {
					available++
				}
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fewest, o.most = min(o.fewest, available), max(o.most, all)
}

// extremes since the last reset.
func (o *observer) extremes() (fewest, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fewest, o.most
}

func (o *observer) history(member string) []int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.replicas[member])
}

// settled waits until web has these replicas in the members, all available and
// of the present template.
func (o *observer) settled(want map[string]int32) {
	o.t.Helper()
	labtest.Eventually(o.t, 2*time.Minute, func(context.Context) error { return o.all(want) })
	time.Sleep(1500 * time.Millisecond) // what the observer calls available
}

// all says what is missing for everything to be as wanted now.
func (o *observer) all(want map[string]int32) error {
	got := map[string]int32{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for member, d := range o.present {
		if d == nil {
			continue
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.AvailableReplicas != *d.Spec.Replicas || s.UpdatedReplicas != s.Replicas || s.Replicas != *d.Spec.Replicas {
			return fmt.Errorf("%s is not done: spec.replicas %d, status %+v", member, *d.Spec.Replicas, s)
		}
		got[member] = *d.Spec.Replicas
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("replicas %v, want %v", got, want)
	}
	return nil
}

// soon allows for the lag of watches, and no more.
func (o *observer) soon(limit time.Duration, check func() error) error {
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return err
}

// ownerOf says which manager claims a field of web in a member.
func ownersOfReplicas(ctx context.Context, client kubernetes.Interface, ns string) ([]string, error) {
	d, err := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range d.ManagedFields {
		if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:replicas"`) && f.Subresource != "status" {
			out = append(out, f.Manager)
		}
	}
	return out, nil
}
