package watchdog

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// mute answers lists, but its watches are open and say nothing.
type mute struct {
	revision, lists, streams atomic.Int64
}

func (m *mute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			m.streams.Add(1)
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	m.lists.Add(1)
	rv := strconv.FormatInt(m.revision.Load(), 10)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMapList", "metadata": map[string]any{"resourceVersion": rv},
		"items": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "one", "namespace": "default", "resourceVersion": rv},
		}},
	})
}

// An informer over HTTP whose every stream is open and silent fills all the
// same, and learns what changes.
func TestSilentStreams(t *testing.T) {
	handler := &mute{}
	handler.revision.Store(5)
	server := httptest.NewServer(handler)
	defer server.Close()
	defer server.CloseClientConnections()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	res := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	limits := Limits{
		Answer: 10 * time.Second, Page: 10 * time.Second, Event: 200 * time.Millisecond, Initial: time.Second,
		Beat: 300 * time.Millisecond, Quiet: 300 * time.Millisecond, Distrust: time.Hour,
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return res.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return res.Watch(ctx, o)
		},
	}
	var told atomic.Int64
	informer := cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(Guard(lw, limits, func(error) { told.Add(1) }), client),
		&unstructured.Unstructured{}, 0, cache.Indexers{})
	go informer.RunWithContext(t.Context())
	has := func(rv string) bool {
		obj, found, err := informer.GetStore().GetByKey("default/one")
		u, ok := obj.(*unstructured.Unstructured)
		return err == nil && found && ok && u.GetResourceVersion() == rv
	}
	await(t, handler, "fill", func() bool { return informer.HasSynced() && has("5") })
	handler.revision.Store(6)
	await(t, handler, "learn of a change", func() bool { return has("6") })
	if streams := handler.streams.Load(); streams != 1 || told.Load() < 2 {
		t.Errorf("initial events were asked for %d times, told %d times", streams, told.Load())
	}
}

func await(t *testing.T, m *mute, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the informer did not %s: %d lists, %d streams of initial events", what, m.lists.Load(), m.streams.Load())
		}
	}
}
