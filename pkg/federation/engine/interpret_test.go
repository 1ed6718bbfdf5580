package engine

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
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

// A binding does not grow beyond what etcd takes, however many copies there are.
func TestAggregatedIsBounded(t *testing.T) {
	part := aggregate.Part{Cluster: "m1", Applied: true, Health: interpreter.Healthy, Status: map[string]any{"b": int64(1), "a": "x"}}
	got, err := aggregatedOf([]aggregate.Part{part, {Cluster: "m2", StaleSince: "now", Health: interpreter.Healthy}}, map[string]string{"m2": "unreachable"})
	if err != nil || len(got) != 2 || string(got[0].Status.Raw) != `{"a":"x","b":1}` || !got[0].Applied || got[0].Health != interpreter.Healthy {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got[1].Health != interpreter.Unknown || got[1].AppliedMessage != "unreachable" {
		t.Fatalf("an unreachable copy: %+v", got[1])
	}
	other, _ := aggregatedOf([]aggregate.Part{part}, nil)
	other[0].Status.Raw = []byte(`{"b": 1, "a": "x"}`)
	if !sameItems(got[:1], other) {
		t.Fatal("the order of keys is no difference")
	}
	other[0].Status.Raw = []byte(`{"b": 2, "a": "x"}`)
	if sameItems(got[:1], other) {
		t.Fatal("another status is a difference")
	}
	part.Status = map[string]any{"text": strings.Repeat("x", largestAggregated)}
	if got, err = aggregatedOf([]aggregate.Part{part}, nil); err != nil || got[0].Status != nil || !got[0].Applied {
		t.Fatalf("got %+v, %v", got, err)
	}
}
