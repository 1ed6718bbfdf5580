package clients

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// inside is set in the process that has client-go's own checks switched on:
// client-go reads their variables when a process starts.
const inside = "CLIENTS_INSIDE"

// Informers of the three kinds, with the checks of client-go that compare what
// they hold with a list (they panic when it differs), a RetryWatcher and a
// MutationCache follow Pods that come, change and go in two clusters.
func TestSelfCheckingInformers(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, watchList := range []string{"true", "false"} {
		t.Run("WatchList "+watchList, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, "-test.run=^TestInside$", "-test.count=1", "-test.v")
			cmd.Env = append(os.Environ(), "KUBECONFIG="+world.System.Kubeconfig(), inside+"="+labtest.Namespace(t, world.System.Kubeconfig()),
				"KUBE_FEATURE_WatchListClient="+watchList,
				"KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestInside") {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "nconsistent") {
				t.Errorf("client-go found an inconsistency:\n%s", out)
			}
		})
	}
}

// follower holds what the clients of one namespace see.
type follower struct {
	client kubernetes.Interface
	ns     string
	stores map[string]cache.SharedIndexInformer
	events *record
}

func TestInside(t *testing.T) {
	ns := os.Getenv(inside)
	if ns == "" {
		t.Skip("runs in a process of its own")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	f := follow(t, config, ns)
	f.deploy(t, 6)
	f.settled(t, 6)
	f.mutate(t)
	for _, replicas := range []int32{2, 8, 3} {
		f.scale(t, replicas)
		f.settled(t, int(replicas))
	}
	if err := f.client.CoreV1().Pods(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	f.settled(t, 3)
	if err := f.client.AppsV1().Deployments(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.settled(t, 0)
	f.events.check(t)
}

func follow(t *testing.T, config *rest.Config, ns string) *follower {
	t.Helper()
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	f := &follower{client: kubernetes.NewForConfigOrDie(config), ns: ns, events: &record{live: map[string]string{}}}
	typed := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithNamespace(ns))
	untyped := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, ns, nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), 0, ns, nil)
	f.stores = map[string]cache.SharedIndexInformer{
		"typed": typed.Core().V1().Pods().Informer(), "dynamic": untyped.ForResource(pods).Informer(), "metadata": partial.ForResource(pods).Informer(),
	}
	list, err := f.client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Each watch ends after three seconds, so that it is resumed many times.
	retry, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.TimeoutSeconds = new(int64(3))
			return f.client.CoreV1().Pods(ns).Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go f.events.read(retry)
	typed.Start(t.Context().Done())
	untyped.Start(t.Context().Done())
	partial.Start(t.Context().Done())
	for name, informer := range f.stores {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatalf("the %s informer does not sync", name)
		}
		cancel()
	}
	return f
}

func (f *follower) deploy(t *testing.T, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := f.client.AppsV1().Deployments(f.ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *follower) scale(t *testing.T, replicas int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := f.client.AppsV1().Deployments(f.ns).Patch(t.Context(), "web", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// versions are the resourceVersions by name.
func versions(objects []runtime.Object) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		if m, err := meta.Accessor(o); err == nil {
			out[m.GetName()] = m.GetResourceVersion()
		}
	}
	return out
}

// settled waits until that many Pods run, and every client holds what a list says.
func (f *follower) settled(t *testing.T, count int) {
	t.Helper()
	labtest.Eventually(t, 90*time.Second, func(ctx context.Context) error {
		list, err := f.client.CoreV1().Pods(f.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var objects []runtime.Object
		running := 0
		for n := range list.Items {
			objects = append(objects, &list.Items[n])
			if p := &list.Items[n]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				running++
			}
		}
		if running != count || len(objects) != count {
			return fmt.Errorf("%d of %d Pods run, want %d", running, len(objects), count)
		}
		want := versions(objects)
		for name, informer := range f.stores {
			var held []runtime.Object
			for _, o := range informer.GetStore().List() {
				held = append(held, o.(runtime.Object)) //nolint:forcetypeassert // informers hold nothing else
			}
			if got := versions(held); !maps.Equal(got, want) {
				return fmt.Errorf("the %s informer holds %v, the list %v", name, got, want)
			}
		}
		if got := f.events.present(); !maps.Equal(got, want) {
			return fmt.Errorf("the RetryWatcher's events amount to %v, the list to %v", got, want)
		}
		return nil
	})
}

// mutate writes through a MutationCache, which must show each write at once and
// never an older version after it.
func (f *follower) mutate(t *testing.T) {
	t.Helper()
	informer := f.stores["typed"]
	mutations := cache.NewIntegerResourceVersionMutationCache(klog.Background(), informer.GetStore(), informer.GetIndexer(), time.Minute, true)
	for _, key := range informer.GetStore().ListKeys() {
		_, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"step":"%d"}}}`, n)
			written, err := f.client.CoreV1().Pods(f.ns).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mutations.Mutation(written)
			held, ok, err := mutations.GetByKey(key)
			if pod, isPod := held.(*corev1.Pod); err != nil || !ok || !isPod || pod.Annotations["step"] != fmt.Sprint(n) {
				t.Errorf("after step %d the MutationCache holds %v (%v, %v)", n, held, ok, err)
			}
		}
	}
}

// record is what a RetryWatcher has delivered.
type record struct {
	mu     sync.Mutex
	live   map[string]string // version by name
	last   []string          // versions, in order
	wrong  []string
	events int
}

func (r *record) read(w watch.Interface) {
	for event := range w.ResultChan() {
		r.mu.Lock()
		r.note(event)
		r.mu.Unlock()
	}
}

func (r *record) note(event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if event.Type == watch.Bookmark {
		return
	}
	if !ok {
		r.wrong = append(r.wrong, fmt.Sprintf("%s %v", event.Type, event.Object))
		return
	}
	r.events++
	before, known := r.live[pod.Name]
	switch {
	case event.Type == watch.Added && known, event.Type != watch.Added && !known:
		r.wrong = append(r.wrong, fmt.Sprintf("%s of %s, known before: %v", event.Type, pod.Name, known))
	case before == pod.ResourceVersion:
		r.wrong = append(r.wrong, fmt.Sprintf("%s of %s at %s twice", event.Type, pod.Name, before))
	}
	r.last = append(r.last, pod.ResourceVersion)
	r.live[pod.Name] = pod.ResourceVersion
	if event.Type == watch.Deleted {
		delete(r.live, pod.Name)
	}
}

func (r *record) present() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.live)
}

// check expects every event once and in the order of its version.
func (r *record) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrong) > 0 || r.events < 20 {
		t.Errorf("%d events, wrong: %v", r.events, r.wrong)
	}
	byNumber := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }
	if !slices.IsSortedFunc(r.last, byNumber) {
		t.Errorf("the versions do not grow: %v", r.last)
	}
}
