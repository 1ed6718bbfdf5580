package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// FuzzProtobuf compares with the typed decoder: what we can read it reads too,
// and alike; what we rewrite differs in what was asked for only.
func FuzzProtobuf(f *testing.F) {
	f.Add(encode(f, cache.Protobuf, samplePod()), "m1")
	f.Add(encode(f, cache.Protobuf, &corev1.Pod{}), "")
	f.Fuzz(func(t *testing.T, raw []byte, value string) {
		var typed corev1.Pod
		typedErr := typed.Unmarshal(raw)
		m, err := ParseMeta(cache.Protobuf, raw)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if typedErr != nil {
			return // it reads all of the object, we its metadata
		}
		assertMeta(t, m, &typed.ObjectMeta)
		values, err := FieldsOf("", "Pod").Read(cache.Protobuf, raw)
		if err != nil {
			t.Fatalf("fields: %v", err)
		}
		if values[0] != typed.Spec.NodeName || values[5] != string(typed.Status.Phase) {
			t.Fatalf("fields %v of %+v", values, typed.Spec)
		}
		out, err := Rewrite(cache.Protobuf, raw, Edit{
			Name: "n", ResourceVersion: "1", SetLabels: []Pair{{"isthmus.dev/cluster", value}},
			Texts: []TextEdit{{PodNodeName, value}},
		})
		if err != nil {
			t.Fatalf("rewrite: %v", err)
		}
		var got corev1.Pod
		if err := got.Unmarshal(out); err != nil {
			t.Fatalf("rewritten object: %v", err)
		}
		typed.Name, typed.ResourceVersion = "n", "1"
		if typed.Labels == nil {
			typed.Labels = map[string]string{}
		}
		typed.Labels["isthmus.dev/cluster"] = value
		if typed.Spec.NodeName != "" {
			typed.Spec.NodeName = value
		}
		if !bytes.Equal(encode(t, cache.Protobuf, &typed), encode(t, cache.Protobuf, &got)) {
			t.Fatal(cmp.Diff(typed, got))
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add(encode(f, cache.JSON, samplePod()), "m1")
	f.Add([]byte(`{"metadata":{},"spec":{"nodeName":"x"}}`), "\"")
	f.Add([]byte(`{"metadata":{"labels":null,"ownerReferences":[{}]}}`), "")
	f.Fuzz(func(t *testing.T, raw []byte, value string) {
		m, err := ParseMeta(cache.JSON, raw)
		out, rewriteErr := Rewrite(cache.JSON, raw, Edit{
			Name: "n", ResourceVersion: "1", SetLabels: []Pair{{"isthmus.dev/cluster", value}},
			Texts: []TextEdit{{PodNodeName, "node"}},
		})
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if rewriteErr != nil {
			if !errors.Is(rewriteErr, ErrMalformed) {
				t.Fatalf("error of no kind: %v", rewriteErr)
			}
			return
		}
		if !json.Valid(out) {
			t.Fatalf("no JSON any more: %s", out)
		}
		got, err := ParseMeta(cache.JSON, out)
		if err != nil {
			t.Fatalf("rewritten object: %v: %s", err, out)
		}
		if got.Name != "n" || got.ResourceVersion != "1" || got.Namespace != m.Namespace || got.UID != m.UID {
			t.Fatalf("rewritten %+v of %+v", got, m)
		}
	})
}

// FuzzFrames checks that hostile bodies end in an error, without a panic and
// without allocating what they claim.
func FuzzFrames(f *testing.F) {
	f.Add(watchBody(f, cache.Protobuf), true)
	f.Add(watchBody(f, cache.JSON), false)
	f.Fuzz(func(t *testing.T, body []byte, proto bool) {
		enc := cache.JSON
		if proto {
			enc = cache.Protobuf
		}
		frames := NewFrames(enc, bytes.NewReader(body))
		total := 0
		for {
			frame, err := frames.Next()
			if err != nil {
				break
			}
			if total += len(frame.Object); total > len(body) {
				t.Fatal("frames are larger than the body")
			}
			if frame.Type == TypeError {
				_, _ = DecodeStatus(frame.Object)
				continue
			}
			_, _ = ParseMeta(enc, frame.Object)
		}
	})
}

func FuzzList(f *testing.F) {
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c"}, Items: []corev1.Pod{*samplePod(), {}}}
	raw, err := list.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Wrap(nil, raw, corev1.SchemeGroupVersion.WithKind("PodList")), true)
	js, err := json.Marshal(list)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(js, false)
	f.Fuzz(func(t *testing.T, body []byte, proto bool) {
		enc := cache.JSON
		if proto {
			enc = cache.Protobuf
		}
		_, _, err := EachListItem(enc, body, "v1", "Pod", func(item []byte) error {
			if enc == cache.JSON && !json.Valid(item) {
				t.Fatalf("item is no JSON: %q", item)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("error of no kind: %v", err)
		}
	})
}
