package engine

import (
	"testing"

	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// A cluster for which an override fails keeps what it has, and the others go on.
func TestUnsaidHoldsUpNobody(t *testing.T) {
	there := &copyRecord{owned: true, replicas: 3, rollout: &rolloutRecord{observed: true, ready: 3, total: 3}}
	failing := unsaid(rollout.Cluster{Name: "m2"}, there, applied{})
	if !failing.Closed || failing.Lost || failing.Target != 3 || failing.Available != 3 {
		t.Errorf("with a copy: %+v", failing)
	}
	if c := unsaid(rollout.Cluster{Name: "m2"}, nil, applied{}); !c.Closed || !c.Lost || c.Target != 0 {
		t.Errorf("without a copy: %+v", c)
	}
	other := rollout.Cluster{Name: "m1", Exists: true, Target: 3, Present: 3, Least: 3, Available: 3, Outdated: true, Next: rollout.Budget{Surge: 1}}
	w := rollout.Workload{Desired: 6, Budget: rollout.Budget{Surge: 1}}
	plan := rollout.Plan(w, []rollout.Cluster{other, failing})
	if !plan["m1"].Template || plan["m2"].Replicas != 3 {
		t.Errorf("granted %+v", plan)
	}
}
