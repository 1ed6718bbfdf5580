package engine

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

const foo = `{apiVersion: example.com/v1, kind: Foo, metadata: {name: x, namespace: d, uid: tu, resourceVersion: "5", generation: 2}, spec: {size: 6, replicas: text}}`

var fooKey = marks.Key{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}, Namespace: "d", Name: "x"}

// Where a script sets replicas, nothing else does; its failure is no number.
func TestRenderRevised(t *testing.T) {
	d := &decision{uid: "tu", targets: map[string]int32{"m1": 4}, divided: true}
	d.revise = func(o map[string]any, n int32) (map[string]any, error) {
		o["spec"].(map[string]any)["size"] = int64(n)
		return o, nil
	}
	r, err := render("cp", 1, fooKey, templateOf(t, foo), d, &placement.Cluster{Name: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"size": int64(4), "replicas": "text"}; !reflect.DeepEqual(r.object.Object["spec"], want) || r.divided {
		t.Fatalf("got %v, divided %v", r.object.Object["spec"], r.divided)
	}
	d.revise = func(map[string]any, int32) (map[string]any, error) { return nil, errUninterpreted }
	if _, err := render("cp", 1, fooKey, templateOf(t, foo), d, &placement.Cluster{Name: "m1"}); !errors.Is(err, errUninterpreted) {
		t.Fatalf("got %v", err)
	}
}

func TestNeedsBySelector(t *testing.T) {
	n := newNeeds()
	repository := marks.Key{GroupVersionKind: schema.GroupVersionKind{Group: "source.example.com", Version: "v1", Kind: "Repository"}, Namespace: "e", Name: "r"}
	changed := n.set(fooKey, []dependencies.Ref{
		{APIVersion: "source.example.com/v1", Kind: "Repository", Namespace: "e", Selector: "team in (a,b)"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "c"},
	})
	if len(changed) != 2 {
		t.Fatalf("changed: %v", changed)
	}
	for team, want := range map[string]int{"a": 1, "c": 0} {
		if got := n.workloads(repository, labels.Set{"team": team}); len(got) != want {
			t.Errorf("team %s: %v", team, got)
		}
	}
	core := marks.Key{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "d", Name: "c"}
	if got := n.workloads(core, nil); len(got) != 1 {
		t.Errorf("by name: %v", got)
	}
	core.Group = "example.com"
	if got := n.workloads(core, nil); len(got) != 0 {
		t.Errorf("another group: %v", got)
	}
	if n.set(fooKey, nil); len(n.by)+len(n.of)+len(n.selecting) != 0 {
		t.Errorf("left after removal: %v %v %v", n.by, n.of, n.selecting)
	}
}

func TestTroubles(t *testing.T) {
	var x troubles
	at := troubleKey{interpreter.InterpretHealth, "m1"}
	if !x.set(fooKey, at, "line 1: bad") || x.set(fooKey, at, "line 1: bad") {
		t.Fatal("a problem is told once")
	}
	x.set(fooKey, troubleKey{interpreter.AggregateStatus, ""}, "line 9: worse")
	if got, want := x.list(fooKey), []string{"line 9: worse", "m1: line 1: bad"}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %q", got)
	}
	var conditions []metav1.Condition
	if !setInterpreted(&conditions, x.list(fooKey), 3) || conditions[0].Status != metav1.ConditionFalse || conditions[0].Message != "line 9: worse; m1: line 1: bad" {
		t.Fatalf("conditions: %+v", conditions)
	}
	if !x.set(fooKey, at, "") || x.set(fooKey, at, "") {
		t.Fatal("a recovery is told once")
	}
	x.forget(fooKey)
	if !setInterpreted(&conditions, x.list(fooKey), 3) || len(conditions) != 0 {
		t.Fatalf("conditions: %+v", conditions)
	}
}

// A binding says of each copy whether it is there and well, and holds none of
// its status.
func TestAggregatedHoldsNoStatus(t *testing.T) {
	parts := []aggregate.Part{
		{Cluster: "m1", Applied: true, Health: interpreter.Healthy, Status: map[string]any{"replicas": int64(1)}},
		{Cluster: "m2", StaleSince: "now", Health: interpreter.Healthy},
	}
	problems := map[string]string{"m2": "unreachable"}
	var status workv1alpha2.ResourceBindingStatus
	if !showAggregated(&status, parts, problems) {
		t.Fatal("nothing is to be written")
	}
	want := []workv1alpha2.AggregatedStatusItem{
		{ClusterName: "m1", Applied: true, Health: interpreter.Healthy},
		{ClusterName: "m2", AppliedMessage: "unreachable", Health: interpreter.Unknown},
	}
	if diff := cmp.Diff(want, status.AggregatedStatus); diff != "" {
		t.Error(diff)
	}
	parts[0].Status["replicas"] = int64(2)
	if showAggregated(&status, parts, problems) {
		t.Error("another status of a copy is written to the binding")
	}
	parts[0].Health = interpreter.Unhealthy
	if !showAggregated(&status, parts, problems) {
		t.Error("a copy that is no longer well is not shown")
	}
}
