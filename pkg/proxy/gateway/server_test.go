package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

var (
	podResource = cache.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Kind:                 "Pod", Namespaced: true,
	}
	nodeResource = cache.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
		Kind:                 "Node",
	}
	eventResource = cache.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "events"},
		Kind:                 "Event", Namespaced: true,
	}
	widgetResource = cache.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Kind:                 "Widget", Namespaced: true, Encoding: cache.JSON,
	}
)

// endpoint is a server with the handler behind what the chain gives it.
type endpoint struct {
	*httptest.Server
	handler *Handler
	pods    *fakeCollection
	nodes   *fakeCollection
	events  *fakeCollection
	widgets *fakeCollection
}

func newEndpoint(t testing.TB, change ...func(*Options)) *endpoint {
	t.Helper()
	e := &endpoint{
		pods: newFakeCollection(podResource), nodes: newFakeCollection(nodeResource),
		events: newFakeCollection(eventResource), widgets: newFakeCollection(widgetResource),
	}
	o := Options{
		Cache: &fakeCache{collections: []*fakeCollection{e.pods, e.nodes, e.events, e.widgets}},
		SelectableFields: func(schema.GroupVersionResource) []string {
			return []string{"spec.color"}
		},
	}
	for _, f := range change {
		f(&o)
	}
	e.handler = New(o)
	e.Server = httptest.NewServer(chain(e.handler))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// chain sets RequestInfo and user as the handler chain does.
func chain(next http.Handler) http.Handler {
	factory := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := factory.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithRequestInfo(r.Context(), info)
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "alice"})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func pod(ns, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

var podFields = fields.Set{"spec.nodeName": "n1", "status.phase": "Running"}

func (e *endpoint) putPods(t testing.TB, cluster cache.ClusterName, ns string, n int) {
	t.Helper()
	for i := range n {
		e.pods.put(t, cluster, pod(ns, fmt.Sprintf("%s-%03d", cluster, i)), podFields)
	}
}

// fetch makes one GET request with an Accept header.
func (e *endpoint) fetch(t testing.TB, path, accept string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return resp, b
}

// fetchJSON decodes an answer and checks its code.
func fetchJSON[T any](t testing.TB, e *endpoint, path, accept string, code int) T {
	t.Helper()
	resp, b := e.fetch(t, path, accept)
	if resp.StatusCode != code {
		t.Fatalf("GET %s: %d, want %d: %s", path, resp.StatusCode, code, b)
	}
	var out T
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, b)
	}
	return out
}
