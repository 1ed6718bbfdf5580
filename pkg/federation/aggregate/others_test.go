package aggregate

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func cond(typ, status string) map[string]any { return map[string]any{"type": typ, "status": status} }

func TestReplicaSet(t *testing.T) {
	part := func(cluster, stale string, ready int64, conds ...any) Part {
		return Part{
			Cluster: cluster, Exists: true, Applied: true, Generation: 1, StaleSince: stale,
			Status: map[string]any{"replicas": int64(2), "readyReplicas": ready, "availableReplicas": ready, "observedGeneration": int64(1), "conditions": conds},
		}
	}
	for _, gk := range []schema.GroupKind{{Group: "apps", Kind: "ReplicaSet"}, {Kind: "ReplicationController"}} {
		in := Input{Kind: gk, Generation: 3, Replicas: 6, Decided: true, Former: map[string]any{"observedGeneration": int64(2)}}
		in.Parts = []Part{part("m1", "", 2), part("m2", "", 1, cond("ReplicaFailure", "True")), part("m3", "10:00", 2)}
		got := Status(in)
		for field, want := range map[string]int64{"replicas": 6, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 3} {
			if number(got, field) != want {
				t.Errorf("%s: %s = %v, want %d", gk.Kind, field, got[field], want)
			}
		}
		if text(condition(got, "ReplicaFailure"), "status") != "True" || condition(got, "Stale") == nil {
			t.Errorf("%s: conditions %v", gk.Kind, got["conditions"])
		}
		in.Parts[0].Applied = false
		if got := Status(in); number(got, "observedGeneration") != 2 {
			t.Errorf("%s: a copy behind counts as observed: %v", gk.Kind, got["observedGeneration"])
		}
	}
}

// What somebody else wrote into the conditions stays; what the members' own
// controllers no longer say goes.
func TestForeignConditionsStay(t *testing.T) {
	theirs := cond("StatusUpdate", "True")
	in := Input{
		Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, Generation: 1, Replicas: 1, Decided: true,
		Former: map[string]any{"conditions": []any{cond("ReplicaFailure", "True"), theirs, cond("Stale", "True")}},
		Parts:  []Part{{Cluster: "m1", Exists: true, Applied: true, Status: map[string]any{"replicas": int64(1)}}},
	}
	got := Status(in)
	if want := []any{theirs}; !reflect.DeepEqual(got["conditions"], want) {
		t.Errorf("conditions %v, want %v", got["conditions"], want)
	}
}
