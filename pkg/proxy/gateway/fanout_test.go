package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// stub is a member whose answers a test dictates.
type stub struct {
	*httptest.Server
	requests atomic.Int32
}

func newStub(t *testing.T, h http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			s.requests.Add(1)
		}
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) member(name string) Member {
	return Member{Name: cache.ClusterName(name), Ready: true, EverSynced: true, Config: &rest.Config{Host: s.URL}}
}

// ServedName of the fake: the second member's objects are renamed.
func (c *fakeCollection) ServedName(cluster cache.ClusterName, _, name string) string {
	if cluster == "m2" {
		return name + ".m2"
	}
	return name
}

func answerStatus(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason})
}

func metricsOf(names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if sel := r.URL.Query().Get("labelSelector"); strings.Contains(sel, cache.ClusterLabel) {
			answerStatus(w, http.StatusTeapot, "ClusterRequirementForwarded")
			return
		}
		var items []string
		for _, n := range names {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"d"},"containers":[]}`, n))
		}
		w.Header().Set("Content-Type", jsonType)
		fmt.Fprintf(w, `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[%s]}`, strings.Join(items, ","))
	}
}

func TestLiveList(t *testing.T) {
	m1, m2 := newStub(t, metricsOf("web", "api")), newStub(t, metricsOf("web"))
	m3 := newStub(t, func(w http.ResponseWriter, _ *http.Request) { answerStatus(w, 404, metav1.StatusReasonNotFound) })
	m4 := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		answerStatus(w, 503, metav1.StatusReasonServiceUnavailable)
	})
	e := newEndpoint(t, func(o *Options) {
		o.Members = staticMembers{{Name: cache.ControlPlane}, m1.member("m1"), m2.member("m2"), m3.member("m3"), m4.member("m4")}
	})
	const path = "/apis/metrics.k8s.io/v1beta1/pods"
	list := func(query string) (names []string, warnings int) {
		resp, body := e.fetch(t, path+query, jsonType)
		var l struct {
			Kind  string
			Items []metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(body, &l); err != nil || resp.StatusCode != 200 || l.Kind != "PodMetricsList" {
			t.Fatalf("%s: %d %s", query, resp.StatusCode, body)
		}
		for _, i := range l.Items {
			names = append(names, i.Name+"@"+i.Labels[cache.ClusterLabel])
		}
		return names, len(resp.Header.Values("Warning"))
	}
	for query, want := range map[string]string{
		"": "api@m1 web@m1 web.m2@m2, 2 warnings",
		"?labelSelector=isthmus.dev/cluster%3Dm2": "web.m2@m2, 0 warnings",
		"?fieldSelector=metadata.name%3Dweb.m2":   "web.m2@m2, 2 warnings",
	} {
		names, warnings := list(query)
		if got := fmt.Sprintf("%s, %d warnings", strings.Join(names, " "), warnings); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]int{
		"?labelSelector=isthmus.dev/cluster%3Dm3": http.StatusNotFound,
		"?labelSelector=isthmus.dev/cluster%3Dm4": http.StatusServiceUnavailable,
		"?labelSelector=%3D%3D":                   http.StatusBadRequest,
		"?fieldSelector=spec.x%3D1":               http.StatusBadRequest,
	} {
		if resp, body := e.fetch(t, path+query, jsonType); resp.StatusCode != want {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

func TestLiveGet(t *testing.T) {
	var asked string
	m2 := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		w.Header().Set("Content-Type", jsonType)
		io.WriteString(w, `{"kind":"PodMetrics","apiVersion":"metrics.k8s.io/v1beta1","metadata":{"name":"web","namespace":"d"}}`)
	})
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m2.member("m2")} })
	e.putRenamed(t, "m2", "web")
	resp, body := e.fetch(t, "/apis/metrics.k8s.io/v1beta1/namespaces/d/pods/web.m2", jsonType)
	var p metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &p); err != nil || resp.StatusCode != 200 || p.Name != "web.m2" || p.Labels[cache.ClusterLabel] != "m2" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if asked != "/apis/metrics.k8s.io/v1beta1/namespaces/d/pods/web" {
		t.Errorf("asked for %s", asked)
	}
	if resp, body := e.fetch(t, "/apis/metrics.k8s.io/v1beta1/namespaces/d/pods/none", jsonType); resp.StatusCode != 404 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// putRenamed adds the Pod of a cluster under NAME.CLUSTER.
func (e *endpoint) putRenamed(t *testing.T, cluster cache.ClusterName, name string) *cache.Object {
	t.Helper()
	p := pod("d", name+"."+string(cluster))
	o := e.pods.put(t, cluster, p, podFields)
	o.SourceName, o.SourceRV = name, 7
	return o
}
