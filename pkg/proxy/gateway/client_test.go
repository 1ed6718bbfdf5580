package gateway

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	isthmus "github.com/isthmus-dev/isthmus/pkg/cache"
)

func (e *endpoint) config() *rest.Config {
	return &rest.Config{Host: e.URL, QPS: 1000, Burst: 1000}
}

// checkInformer waits until an informer's store follows the fake.
func checkInformer(t *testing.T, informer cache.SharedIndexInformer, step string, want int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if n := len(informer.GetStore().ListKeys()); n == want {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s: %d objects in the store, want %d", step, n, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// checkRV waits until an informer has got as far as want.
func checkRV(t *testing.T, informer cache.SharedIndexInformer, name, want string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for informer.LastSyncResourceVersion() != want {
		if time.Now().After(deadline) {
			t.Fatalf("%s: RV %s, want %s", name, informer.LastSyncResourceVersion(), want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestInformers(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(map[bool]string{true: "watch-list", false: "list and watch"}[watchList], func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			e := newEndpoint(t)
			e.putPods(t, "m1", "default", 600)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			typed := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(e.config()), 0)
			dyn := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(e.config()), 0)
			meta := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(e.config()), 0)
			pods := map[string]cache.SharedIndexInformer{
				"typed":    typed.Core().V1().Pods().Informer(),
				"dynamic":  dyn.ForResource(podResource.GroupVersionResource).Informer(),
				"metadata": meta.ForResource(podResource.GroupVersionResource).Informer(),
			}
			widgets := dyn.ForResource(widgetResource.GroupVersionResource).Informer()
			newEvents := typed.Events().V1().Events().Informer()
			var deleted atomic.Int32
			for _, i := range pods {
				if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { deleted.Add(1) }}); err != nil {
					t.Fatal(err)
				}
			}
			typed.Start(ctx.Done())
			dyn.Start(ctx.Done())
			meta.Start(ctx.Done())
			for name, i := range pods {
				wait, stop := context.WithTimeout(ctx, 10*time.Second)
				if !cache.WaitForCacheSync(wait.Done(), i.HasSynced) {
					t.Fatalf("%s never synced", name)
				}
				stop()
				checkInformer(t, i, name+" at first", 600)
			}
			e.putPods(t, "m2", "other", 50)
			e.pods.remove(t, pod("default", "m1-007"))
			e.widgets.putRaw(widget("default", "w1", "red"))
			e.events.put(t, "m1", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ev"}}, nil)
			for name, i := range pods {
				// The store passes through this size before the last change:
				// the RV says when all are in.
				checkRV(t, i, name, formatRV(e.pods.rv))
				checkInformer(t, i, name+" after changes", 649)
			}
			checkInformer(t, widgets, "widgets", 1)
			checkInformer(t, newEvents, "events.k8s.io", 1)
			if o := newEvents.GetStore().List()[0].(*eventsv1.Event); o.Name != "ev" {
				t.Errorf("%+v", o)
			}
			// A break of every connection loses nothing.
			e.CloseClientConnections()
			e.putPods(t, "m3", "third", 10)
			for name, i := range pods {
				checkInformer(t, i, name+" after a break", 659)
			}
			if n := deleted.Load(); n != 3 {
				t.Errorf("%d deletions seen, want 3", n)
			}
			cancel()
			typed.Shutdown()
			dyn.Shutdown()
			meta.Shutdown()
		})
	}
}

func TestTypedWatchCanBeStopped(t *testing.T) {
	e := newEndpoint(t)
	w, err := kubernetes.NewForConfigOrDie(e.config()).CoreV1().Pods("quiet").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	e.pods.put(t, "m1", pod("quiet", "a"), podFields)
	if ev := <-w.ResultChan(); ev.Type != watch.Added || ev.Object.(*corev1.Pod).Labels[isthmus.ClusterLabel] != "m1" {
		t.Errorf("got %+v", ev)
	}
	e.pods.expire()
	if ev := <-w.ResultChan(); ev.Type != watch.Error || ev.Object.(*metav1.Status).Code != 410 {
		t.Errorf("got %+v", ev)
	}
	w.Stop()
}

func TestPagerSurvivesExpiry(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 30)
	client := kubernetes.NewForConfigOrDie(e.config())
	calls := 0
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		calls++
		if calls == 2 {
			e.pods.expire()
		}
		return client.CoreV1().Pods("").List(ctx, o)
	})
	p.PageSize = 10
	n := 0
	if err := p.EachListItem(t.Context(), metav1.ListOptions{}, func(runtime.Object) error { n++; return nil }); err == nil {
		t.Errorf("EachListItem over an expired token gave %d items and no error", n)
	}
	calls = 0
	list, _, err := p.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := list.(*corev1.PodList); !ok || len(l.Items) != 30 {
		t.Errorf("full list after expiry: %T", list)
	}
}

func TestDynamicListKeepsKinds(t *testing.T) {
	e := newEndpoint(t)
	e.widgets.putRaw(widget("default", "w1", "red"))
	e.putPods(t, "m1", "default", 1)
	client := dynamic.NewForConfigOrDie(e.config())
	for _, tc := range []struct {
		res  isthmus.Resource
		kind string
	}{{widgetResource, "Widget"}, {podResource, "Pod"}} {
		list, err := client.Resource(tc.res.GroupVersionResource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			if item.GetKind() != tc.kind {
				t.Errorf("kind %q, want %q", item.GetKind(), tc.kind)
			}
		}
	}
}
