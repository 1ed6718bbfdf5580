package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/revision"
)

// The first revision is to have all replicas from the start, as a deployment
// controller makes it; a later one grows.
func TestReplicasOfANewRevision(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}},
	}}}
	for number, want := range map[int64]int64{1: 3, 2: 0} {
		rs, err := revisionObject(&template{replicas: 3}, u.DeepCopy(), revision.Plan{Create: "web-x", Number: number}, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedInt64(rs.Object, "spec", "replicas"); got != want {
			t.Errorf("revision %d: %d replicas, want %d", number, got, want)
		}
	}
}

func TestRevisionsThatAreNoTemplatesAreCut(t *testing.T) {
	rs := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "ReplicaSet",
			"metadata": map[string]any{"name": "x", "namespace": "d", "annotations": annotations},
			"spec":     map[string]any{"replicas": int64(2)},
		}}
	}
	for name, c := range map[string]struct {
		annotations map[string]any
		want        int32
	}{
		"one's own":  {want: 2},
		"a revision": {annotations: map[string]any{revisionAnnotation: "1"}},
	} {
		got, err := transformTemplate(rs(c.annotations))
		if err != nil {
			t.Fatal(err)
		}
		s, err := got.(*template).shape()
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Spec.Replicas; c.want == 0 && n != nil || c.want != 0 && (n == nil || *n != c.want) {
			t.Errorf("%s: replicas %v, want %d", name, n, c.want)
		}
	}
}
