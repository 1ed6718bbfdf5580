package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func samplePod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "default", UID: "0b5f", ResourceVersion: "41", Generation: 3,
			CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0).UTC()),
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1700000100, 0).UTC()},
			Labels:            map[string]string{"app": "web", "tier": "front", "zz": ""},
			Annotations:       map[string]string{"a": "<&> \"quoted\"", "isthmus.dev/x": "ü"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs-1", Controller: new(true)},
				{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-1"},
			},
			Finalizers:    []string{"keep/me"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: "Always", SchedulerName: "s", ServiceAccountName: "sa", HostNetwork: true,
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
		Status: corev1.PodStatus{Phase: "Running", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd::1"}}, NominatedNodeName: "n2"},
	}
}

func encode(t testing.TB, enc cache.Encoding, pod *corev1.Pod) []byte {
	t.Helper()
	var raw []byte
	var err error
	if enc == cache.JSON {
		raw, err = json.Marshal(pod)
	} else {
		raw, err = pod.Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decodePod(t testing.TB, enc cache.Encoding, raw []byte) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	var err error
	if enc == cache.JSON {
		err = json.Unmarshal(raw, pod)
	} else {
		err = pod.Unmarshal(raw)
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	if err != nil {
		t.Fatalf("decode: %v of %q", err, raw)
	}
	return pod
}

func eachEncoding(t *testing.T, fn func(t *testing.T, enc cache.Encoding)) {
	t.Run("protobuf", func(t *testing.T) { fn(t, cache.Protobuf) })
	t.Run("json", func(t *testing.T) { fn(t, cache.JSON) })
}

func toMap(pairs []Pair) map[string]string {
	m := map[string]string{}
	for _, p := range pairs {
		m[p.Key] = p.Value
	}
	return m
}

func TestParseMeta(t *testing.T) {
	eachEncoding(t, func(t *testing.T, enc cache.Encoding) {
		pod := samplePod()
		m, err := ParseMeta(enc, encode(t, enc, pod))
		if err != nil {
			t.Fatal(err)
		}
		assertMeta(t, m, &pod.ObjectMeta)
		if v, ok := m.Label("zz"); !ok || v != "" {
			t.Errorf("Label(zz) = %q, %v", v, ok)
		}
		if _, ok := m.Annotation("none"); ok {
			t.Error("an annotation is there that is not")
		}
	})
}

func assertMeta(t *testing.T, m Meta, want *metav1.ObjectMeta) {
	t.Helper()
	if m.Name != want.Name || m.Namespace != want.Namespace || m.UID != string(want.UID) ||
		m.ResourceVersion != want.ResourceVersion || m.Generation != want.Generation || m.Deleting != (want.DeletionTimestamp != nil) {
		t.Errorf("meta %+v, want %+v", m, want)
	}
	if !maps.Equal(toMap(m.Labels), want.Labels) || !maps.Equal(toMap(m.Annotations), want.Annotations) {
		t.Errorf("labels %v, annotations %v, want %v, %v", m.Labels, m.Annotations, want.Labels, want.Annotations)
	}
	var owners []cache.OwnerRef
	for _, o := range want.OwnerReferences {
		owners = append(owners, cache.OwnerRef{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: o.Controller != nil && *o.Controller})
	}
	if !slices.Equal(m.Owners, owners) {
		t.Errorf("owners %v, want %v", m.Owners, owners)
	}
}

func TestRewrite(t *testing.T) {
	cases := map[string]struct {
		edit  Edit
		apply func(*corev1.Pod)
	}{
		"nothing": {Edit{}, func(*corev1.Pod) {}},
		"name and version": {
			Edit{Name: "web-0.m2", ResourceVersion: "99"},
			func(p *corev1.Pod) { p.Name, p.ResourceVersion = "web-0.m2", "99" },
		},
		"labels": {
			Edit{SetLabels: []Pair{{"isthmus.dev/cluster", "m1"}, {"app", "other"}}, DeleteLabels: []string{"zz", "none"}},
			func(p *corev1.Pod) {
				p.Labels = map[string]string{"app": "other", "tier": "front", "isthmus.dev/cluster": "m1"}
			},
		},
		"annotations": {
			Edit{SetAnnotations: []Pair{{"n", "<1>"}}, DeleteAnnotations: []string{"a"}},
			func(p *corev1.Pod) { p.Annotations = map[string]string{"isthmus.dev/x": "ü", "n": "<1>"} },
		},
		"owners": {
			Edit{Owners: []OwnerEdit{{Index: 0, Name: "web-abc", UID: "cp-1"}}},
			func(p *corev1.Pod) {
				p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "web-abc", "cp-1"
			},
		},
		"node name": {
			Edit{Texts: []TextEdit{{PodNodeName, "n1.m2"}}},
			func(p *corev1.Pod) { p.Spec.NodeName = "n1.m2" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			eachEncoding(t, func(t *testing.T, enc cache.Encoding) {
				want := samplePod()
				raw := encode(t, enc, want)
				before := bytes.Clone(raw)
				tc.apply(want)
				out, err := Rewrite(enc, raw, tc.edit)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, decodePod(t, enc, out)); diff != "" {
					t.Error(diff)
				}
				if !bytes.Equal(raw, before) {
					t.Error("the input was written to")
				}
				if enc == cache.Protobuf && !bytes.Equal(out, encode(t, enc, want)) {
					t.Error("the result is not as the encoder of the type writes it")
				}
			})
		})
	}
}

func TestRewriteAddsWhatIsNotThere(t *testing.T) {
	eachEncoding(t, func(t *testing.T, enc cache.Encoding) {
		pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		out, err := Rewrite(enc, encode(t, enc, pod), Edit{
			Name: "n", ResourceVersion: "7", SetLabels: []Pair{{"k", "v"}}, SetAnnotations: []Pair{{"a", "b"}},
			Texts: []TextEdit{{PodNodeName, "must not appear"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		pod.ObjectMeta = metav1.ObjectMeta{Name: "n", ResourceVersion: "7", Labels: map[string]string{"k": "v"}, Annotations: map[string]string{"a": "b"}}
		if diff := cmp.Diff(pod, decodePod(t, enc, out)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUnknownFieldsSurvive(t *testing.T) {
	raw := encode(t, cache.Protobuf, samplePod())
	raw = appendText(raw, 4000, "future")
	out, err := Rewrite(cache.Protobuf, raw, Edit{Name: "x", Texts: []TextEdit{{PodNodeName, "y"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := textProto(out, []int32{4000}); err != nil || got != "future" {
		t.Errorf("unknown field is %q, %v", got, err)
	}
	js := []byte(`{"apiVersion":"x/v1","kind":"X","spec":{"big":12345678901234567890.10},"metadata":{"name":"a","future":[1, 2]}}`)
	out, err = Rewrite(cache.JSON, js, Edit{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(string(js), `"a"`, `"b"`, 1); string(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
}

func TestFields(t *testing.T) {
	eachEncoding(t, func(t *testing.T, enc cache.Encoding) {
		table := FieldsOf("", "Pod")
		values, err := table.Read(enc, encode(t, enc, samplePod()))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"n1", "Always", "s", "sa", "true", "Running", "10.0.0.1", "n2"}
		if !slices.Equal(values, want) {
			t.Errorf("%v = %v, want %v", table.Names, values, want)
		}
		values, err = table.Read(enc, encode(t, enc, &corev1.Pod{}))
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"", "", "", "", "false", "", "", ""}; !slices.Equal(values, want) {
			t.Errorf("empty Pod: %v, want %v", values, want)
		}
	})
}

func TestEventFields(t *testing.T) {
	event := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "d", Name: "p", UID: "u", APIVersion: "v1", ResourceVersion: "3", FieldPath: "spec"},
		Reason:         "Failed", Type: "Warning", ReportingController: "kubelet", Source: corev1.EventSource{Component: "sched"},
	}
	for source, component := range map[string]string{"sched": "sched", "kubelet": ""} {
		event.Source.Component = component
		proto, err := event.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		js, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"Pod", "d", "p", "u", "v1", "3", "spec", "Failed", "kubelet", source, "Warning"}
		for enc, raw := range map[cache.Encoding][]byte{cache.Protobuf: proto, cache.JSON: js} {
			if got, err := FieldsOf("", "Event").Read(enc, raw); err != nil || !slices.Equal(got, want) {
				t.Errorf("encoding %d: %v, %v, want %v", enc, got, err, want)
			}
		}
	}
}

func TestEnvelope(t *testing.T) {
	raw := encode(t, cache.Protobuf, samplePod())
	body := Wrap(nil, raw, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	got, apiVersion, kind, err := Unwrap(body)
	if err != nil || apiVersion != "v1" || kind != "Pod" || !bytes.Equal(got, raw) {
		t.Fatalf("%q %q %v", apiVersion, kind, err)
	}
	if _, _, _, err := Unwrap([]byte(`{"kind":"Pod"}`)); !errors.Is(err, ErrMalformed) {
		t.Errorf("JSON in the place of an envelope: %v", err)
	}
}

func TestMalformed(t *testing.T) {
	pod := encode(t, cache.Protobuf, samplePod())
	cases := map[string]struct {
		enc cache.Encoding
		raw []byte
	}{
		"empty protobuf":    {cache.Protobuf, nil},
		"cut protobuf":      {cache.Protobuf, pod[:len(pod)/3]},
		"twice metadata":    {cache.Protobuf, append(bytes.Clone(pod), pod...)},
		"metadata a number": {cache.Protobuf, []byte{1 << 3, 5}},
		"long length":       {cache.Protobuf, []byte{1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f}},
		"empty json":        {cache.JSON, nil},
		"open json":         {cache.JSON, []byte(`{"metadata":{"name":"x"}`)},
		"no object":         {cache.JSON, []byte(`[]`)},
		"no metadata":       {cache.JSON, []byte(`{}`)},
		"name a number":     {cache.JSON, []byte(`{"metadata":{"name":1}}`)},
		"name twice":        {cache.JSON, []byte(`{"metadata":{"name":"a","name":"b"}}`)},
		"metadata twice":    {cache.JSON, []byte(`{"metadata":{"name":"a"},"metadata":{}}`)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if m, err := ParseMeta(tc.enc, tc.raw); !errors.Is(err, ErrMalformed) {
				t.Errorf("ParseMeta = %+v, %v", m, err)
			}
		})
	}
}
