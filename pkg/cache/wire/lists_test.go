package wire

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

type object interface{ Marshal() ([]byte, error) }

func bytesOf(t *testing.T, enc cache.Encoding, obj object) []byte {
	t.Helper()
	raw, err := obj.Marshal()
	if enc == cache.JSON {
		raw, err = json.Marshal(obj)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: true}}}
}

// TestLists: strings behind lists are read and replaced in their order, in both
// encodings, and nothing else changes.
func TestLists(t *testing.T) {
	pod := func(a, b string) *corev1.Pod {
		p := samplePod()
		p.Spec.Volumes = []corev1.Volume{
			claimVolume("one", a),
			{Name: "none", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			claimVolume("two", b),
		}
		return p
	}
	slice := func(a, node string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "d", UID: "u", ResourceVersion: "3"}, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "d", Name: a, UID: "p"}, NodeName: &node},
				{Addresses: []string{"10.0.0.2"}},
				{Addresses: []string{"10.0.0.3"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n"}},
			},
		}
	}
	tests := []struct {
		name       string
		in, out    object
		path       Path
		have, edit []string
	}{
		{"claims of a Pod", pod("a", "b"), pod("a.m2", "b.m2"), PodClaimNames, []string{"a", "b"}, []string{"a.m2", "b.m2"}},
		{"an empty value keeps", pod("a", "b"), pod("a", "b.m2"), PodClaimNames, []string{"a", "b"}, []string{"", "b.m2"}},
		{"too few values", pod("a", "b"), pod("x", "b"), PodClaimNames, []string{"a", "b"}, []string{"x"}},
		{"what is not set stays so", pod("", "b"), pod("", "y"), PodClaimNames, []string{"", "b"}, []string{"x", "y"}},
		{"targets", slice("p", "n1"), slice("p.m2", "n1"), SliceTargetNames, []string{"p", "n"}, []string{"p.m2", ""}},
		{"nodes", slice("p", "n1"), slice("p", "n1.m2"), SliceNodeNames, []string{"n1", "", ""}, []string{"n1.m2", "x", "x"}},
		{"no list at all", samplePod(), samplePod(), PodClaimNames, nil, []string{"x"}},
	}
	for _, tt := range tests {
		for _, enc := range []cache.Encoding{cache.Protobuf, cache.JSON} {
			raw := bytesOf(t, enc, tt.in)
			have, err := Texts(enc, raw, tt.path)
			if err != nil || !slices.Equal(have, tt.have) {
				t.Errorf("%s, encoding %d: read %q, %v", tt.name, enc, have, err)
			}
			out, err := Rewrite(enc, raw, Edit{Lists: []ListEdit{{Path: tt.path, Values: tt.edit}}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytesOf(t, enc, tt.out)), string(out)); diff != "" {
				t.Errorf("%s, encoding %d: %s", tt.name, enc, diff)
			}
		}
	}
}

// TestListsAlign: kinds and names of one list of references have equal lengths.
func TestListsAlign(t *testing.T) {
	raw := []byte(`{"metadata":{"name":"x"},"endpoints":[{"targetRef":{"name":"a"}},{"targetRef":{"kind":"Pod"}},{"targetRef":null},7,{"targetRef":{"kind":"Pod","name":"c"}}]}`)
	kinds, err1 := Texts(cache.JSON, raw, SliceTargetKinds)
	names, err2 := Texts(cache.JSON, raw, SliceTargetNames)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kinds, []string{"", "Pod", "Pod"}) || !slices.Equal(names, []string{"a", "", "c"}) {
		t.Errorf("kinds %q, names %q", kinds, names)
	}
}
