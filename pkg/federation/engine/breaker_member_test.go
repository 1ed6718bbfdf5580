package engine

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

func TestShrinkSteps(t *testing.T) {
	divided := &decision{total: 10, divided: true}
	for name, c := range map[string]struct {
		d                        *decision
		present, want, elsewhere int32
		steps                    []int32
	}{
		"all of it is surplus":         {divided, 8, 5, 5, []int32{5}},
		"a part of it is surplus":      {divided, 10, 5, 3, []int32{5, 7}},
		"none of it is surplus":        {divided, 5, 2, 5, []int32{2}},
		"too few are there already":    {divided, 5, 2, 3, []int32{2}},
		"every copy is the whole":      {&decision{total: 10}, 10, 5, 3, []int32{5}},
		"the template asked for fewer": {&decision{total: 10, divided: true, askedLess: true}, 10, 5, 3, []int32{5}},
	} {
		if got := shrinkSteps(c.d, c.present, c.want, c.elsewhere); !cmp.Equal(got, c.steps) {
			t.Errorf("%s: %v, want %v", name, got, c.steps)
		}
	}
}

// Weights are put right after the breaker stopped their being carried out:
// whatever was moved until then, the workload comes back to its placement, and
// never has less than before.
func TestGoingBackComesToAnEnd(t *testing.T) {
	placed := &decision{total: 10, divided: true, targets: map[string]int32{"m1": 5, "m2": 5}}
	for _, have := range []map[string]int32{{"m1": 8, "m2": 5}, {"m1": 10, "m2": 3}, {"m1": 10, "m2": 2}, {"m1": 9, "m2": 4}, {"m1": 12, "m2": 1}} {
		b, now := breaker.New(breaker.Limits{Window: time.Minute}), time.Now()
		refused := breaker.Removal{Cluster: "m2", Template: "web", Class: breaker.Derived, Amount: breaker.Amount{Replicas: 1}}
		if v, _ := b.Ask(now, refused, breaker.Size{}, breaker.Size{}); v != breaker.Wait {
			t.Fatal("the mistake is not stopped")
		}
		began := maps.Clone(have)
		for range 10 {
			goBack(b, now, placed, have)
			if sum := have["m1"] + have["m2"]; sum < placed.total {
				t.Fatalf("from %v: only %v is left", began, have)
			}
		}
		if !maps.Equal(have, placed.targets) {
			t.Errorf("from %v the workload stays at %v, want %v", began, have, placed.targets)
		}
	}
}

// goBack lets every cluster do what it is granted and permitted now.
func goBack(b *breaker.Breaker, now time.Time, d *decision, have map[string]int32) {
	var clusters []rollout.Cluster
	for _, name := range slices.Sorted(maps.Keys(have)) {
		n := have[name]
		clusters = append(clusters, rollout.Cluster{Name: name, Exists: true, Target: d.targets[name], Present: n, Least: n, Available: n})
	}
	grants := rollout.Plan(rollout.Workload{Desired: d.total, Budget: rollout.Budget{Surge: 3, Unavailable: 2}}, clusters)
	for _, c := range clusters {
		want := grants[c.Name].Replicas
		if want >= c.Present {
			have[c.Name] = want
			continue
		}
		var elsewhere int32
		for _, other := range clusters {
			if other.Name != c.Name {
				elsewhere += min(other.Available, have[other.Name])
			}
		}
		for _, keeps := range shrinkSteps(d, c.Present, want, elsewhere) {
			r := breaker.Removal{
				Cluster: c.Name, Template: "web", Class: breaker.Derived, Nearer: true,
				Amount: breaker.Amount{Replicas: int64(c.Present - keeps)}, Surplus: keeps+elsewhere >= d.total,
			}
			if v, _ := b.Ask(now, r, breaker.Size{}, breaker.Size{}); v == breaker.Go {
				have[c.Name] = keeps
				break
			}
		}
	}
}
