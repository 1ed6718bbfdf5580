package engine

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

func TestPodSelector(t *testing.T) {
	for name, c := range map[string]struct {
		kind     string
		selector any
		want     string
	}{
		"a ReplicaSet":                {"ReplicaSet", map[string]any{"matchLabels": map[string]any{"app": "web"}}, "app=web"},
		"with an expression":          {"ReplicaSet", map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Exists"}}}, "a"},
		"a ReplicationController":     {"ReplicationController", map[string]any{"app": "web"}, "app=web"},
		"without selector":            {"ReplicationController", nil, ""},
		"a selector that matches all": {"ReplicaSet", map[string]any{}, ""},
	} {
		spec := map[string]any{}
		if c.selector != nil {
			spec["selector"] = c.selector
		}
		got, err := transformTemplate(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": c.kind, "metadata": map[string]any{"name": "x", "namespace": "d"}, "spec": spec,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := got.(*template).podSelector(); err != nil || s != c.want {
			t.Errorf("%s: %q, %v; want %q", name, s, err, c.want)
		}
	}
}

func TestHeldByPods(t *testing.T) {
	counts := map[string]int32{"m1": 2, "m2": 3, "gone": 5}
	ready := []string{"m1", "m2", "m3"}
	for replicas, want := range map[int32][]placement.Target{
		0:  nil,
		1:  {{Cluster: "m1", Replicas: 1}},
		4:  {{Cluster: "m1", Replicas: 2}, {Cluster: "m2", Replicas: 2}},
		10: {{Cluster: "m1", Replicas: 2}, {Cluster: "m2", Replicas: 3}},
	} {
		if got := heldByPods(counts, ready, replicas); !slices.Equal(got, want) {
			t.Errorf("%d replicas: %v, want %v", replicas, got, want)
		}
	}
	if got := heldByPods(nil, ready, 3); got != nil {
		t.Errorf("nothing known: %v", got)
	}
}
