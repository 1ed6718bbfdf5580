package aggregate

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestHonest(t *testing.T) {
	foo := schema.GroupKind{Group: "example.com", Kind: "Foo"}
	current := Part{Cluster: "m1", Exists: true, Applied: true, Generation: 4, Status: map[string]any{"observedGeneration": "4"}}
	behind := current
	behind.Status = map[string]any{"observedGeneration": int64(3)}
	unwritten := current
	unwritten.Applied = false
	for _, c := range []struct {
		name        string
		parts       []Part
		former, out map[string]any
		want        any
	}{
		{"everywhere", []Part{current}, nil, map[string]any{"observedGeneration": int64(7)}, int64(7)},
		{"ahead of a controller", []Part{current, behind}, map[string]any{"observedGeneration": int64(6)}, map[string]any{"observedGeneration": int64(7)}, int64(6)},
		{"ahead, as text", []Part{behind}, map[string]any{"observedGeneration": "6"}, map[string]any{"observedGeneration": "7"}, "6"},
		{"ahead of a write", []Part{unwritten}, nil, map[string]any{"observedGeneration": int64(7)}, nil},
		{"the former claim was ahead too", []Part{unwritten}, map[string]any{"observedGeneration": int64(9)}, map[string]any{"observedGeneration": int64(7)}, nil},
		{"an older one is no lie", []Part{unwritten}, nil, map[string]any{"observedGeneration": int64(5)}, int64(5)},
		{"not said", []Part{unwritten}, map[string]any{"observedGeneration": int64(5)}, map[string]any{"x": true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			Honest(Input{Kind: foo, Generation: 7, Decided: true, Former: c.former, Parts: c.parts}, c.out)
			if got := c.out["observedGeneration"]; !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
	if !Known(schema.GroupKind{Group: "apps", Kind: "Deployment"}) || Known(foo) {
		t.Fatal("what is built in is not known")
	}
}
