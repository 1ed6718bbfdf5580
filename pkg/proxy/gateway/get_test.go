package gateway

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func widget(ns, name, color string) *cache.Object {
	return &cache.Object{
		Key: cache.Key{Namespace: ns, Name: name}, Cluster: "m1", SourceName: name,
		Labels: labels.Set{cache.ClusterLabel: "m1"}, Fields: fields.Set{"spec.color": color},
		Body: cache.Bytes(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q,"resourceVersion":"110","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"color":%q,"n":9007199254740993}}`+"\n", ns, name, color)),
	}
}

func TestGetForms(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	const path = "/api/v1/namespaces/default/pods/m1-000"
	resp, b := e.fetch(t, path, "")
	if resp.Header.Get(ClusterHeader) != "m1" || resp.Header.Get("Content-Length") == "" {
		t.Errorf("headers %v", resp.Header)
	}
	if !bytes.Contains(b, []byte(`"kind":"Pod","apiVersion":"v1"`)) || !bytes.HasSuffix(b, []byte("}\n")) {
		t.Errorf("body %s", b)
	}
	want := fetchJSON[corev1.Pod](t, e, path, "", 200)
	_, b = e.fetch(t, path, protobuf)
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := obj.(*corev1.Pod)
	got.TypeMeta = want.TypeMeta
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("JSON and protobuf differ: %s", diff)
	}
	table := fetchJSON[metav1.Table](t, e, path, tableJSON, 200)
	if len(table.Rows) != 1 || table.Rows[0].Cells[1] != "m1" || table.ResourceVersion != "110" || len(table.ColumnDefinitions) == 0 {
		t.Errorf("table %+v", table)
	}
	partial := fetchJSON[metav1.PartialObjectMetadata](t, e, path, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 200)
	if partial.Kind != "PartialObjectMetadata" || partial.APIVersion != "meta.k8s.io/v1" || partial.Name != "m1-000" {
		t.Errorf("partial %+v", partial)
	}
}

func TestGetVersions(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	for query, code := range map[string]int{
		"": 200, "resourceVersion=0": 200, "resourceVersion=5": 200, "resourceVersion=110": 200,
		"resourceVersion=111": 504, "resourceVersion=x": 400, "consistency=strict": 200, "consistency=x": 400,
	} {
		if resp, b := e.fetch(t, "/api/v1/namespaces/default/pods/m1-000?"+query, ""); resp.StatusCode != code {
			t.Errorf("%s: %d, want %d: %s", query, resp.StatusCode, code, b)
		}
	}
}

func TestPathsWithoutRoute(t *testing.T) {
	e := newEndpoint(t)
	for _, path := range []string{"/api/v1/namespaces/default/nodes", "/api/v1/namespaces/default/nodes/n1", "/api/v1/pods/p1"} {
		if resp, b := e.fetch(t, path, ""); resp.StatusCode != 404 {
			t.Errorf("%s: %d: %s", path, resp.StatusCode, b)
		}
	}
}

func TestCustomResourceKeepsItsBytes(t *testing.T) {
	e := newEndpoint(t)
	e.widgets.putRaw(widget("default", "w1", "red"))
	e.widgets.putRaw(widget("default", "w2", "blue"))
	_, b := e.fetch(t, "/apis/example.com/v1/namespaces/default/widgets/w1", "")
	if want := widget("default", "w1", "red").Raw(); !bytes.Equal(b, want) {
		t.Errorf("got %s, want %s", b, want)
	}
	_, b = e.fetch(t, "/apis/example.com/v1/widgets?fieldSelector=spec.color%3Dblue", "")
	if !bytes.Contains(b, []byte(`"kind":"WidgetList"`)) || !bytes.Contains(b, []byte("9007199254740993")) || bytes.Contains(b, []byte("red")) || !bytes.Contains(b, []byte(`"kind":"Widget","`)) {
		t.Errorf("list %s", b)
	}
	table := fetchJSON[metav1.Table](t, e, "/apis/example.com/v1/widgets", tableJSON, 200)
	if len(table.Rows) != 2 || table.Rows[0].Cells[0] != "w1" || table.Rows[0].Cells[1] != "m1" || table.ColumnDefinitions[2].Name != "Age" {
		t.Errorf("table %+v", table)
	}
}

func TestEventsAreOneObject(t *testing.T) {
	e := newEndpoint(t)
	core := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "ev"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"},
		Reason:         "Started", Message: "hello", Source: corev1.EventSource{Component: "kubelet"},
		Count: 3, Type: "Normal", Action: "a", ReportingController: "rc", ReportingInstance: "ri",
		Related: &corev1.ObjectReference{Name: "r"}, Series: &corev1.EventSeries{Count: 7},
		EventTime: metav1.NowMicro(), FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}
	e.events.put(t, "m1", core, fields.Set{"involvedObject.name": "p", "reason": "Started"})
	path := "/namespaces/default/events/ev"
	asCore := fetchJSON[corev1.Event](t, e, "/api/v1"+path, "", 200)
	asNew := fetchJSON[eventsv1.Event](t, e, "/apis/events.k8s.io/v1"+path, "", 200)

	viaInternal, err := convertEvent(&asCore)
	if err != nil {
		t.Fatal(err)
	}
	viaInternal.TypeMeta = asNew.TypeMeta
	if diff := cmp.Diff(*viaInternal, asNew); diff != "" {
		t.Errorf("the two Events differ: %s", diff)
	}
	if asNew.APIVersion != "events.k8s.io/v1" || asNew.ResourceVersion != asCore.ResourceVersion || asNew.Note != "hello" {
		t.Errorf("%+v", asNew)
	}
	for _, path := range []string{"/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dp", "/api/v1/events?fieldSelector=involvedObject.name%3Dp,reason%3DStarted"} {
		if list := fetchJSON[eventsv1.EventList](t, e, path, "", 200); len(list.Items) != 1 {
			t.Errorf("%s: %d items", path, len(list.Items))
		}
	}
	_, b := e.fetch(t, "/apis/events.k8s.io/v1/events", protobuf)
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if items := obj.(*eventsv1.EventList).Items; len(items) != 1 || items[0].Regarding.Name != "p" || items[0].DeprecatedCount != 3 {
		t.Errorf("%+v", items)
	}
}

// convertEvent goes the long way: core to internal to events.k8s.io.
func convertEvent(in *corev1.Event) (*eventsv1.Event, error) {
	hub, err := legacyscheme.Scheme.ConvertToVersion(in, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, err
	}
	obj, err := legacyscheme.Scheme.ConvertToVersion(hub, eventsv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return obj.(*eventsv1.Event), nil
}
