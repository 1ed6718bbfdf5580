package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	n, pct := intstr.FromInt32, intstr.FromString
	ptr := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	for name, c := range map[string]struct {
		replicas     int32
		surge, unav  *intstr.IntOrString
		want         Budget
		wantAnyError bool
	}{
		"default":                          {10, nil, nil, Budget{3, 2}, false},
		"default of one":                   {1, nil, nil, Budget{1, 0}, false},
		"numbers":                          {10, ptr(n(0)), ptr(n(1)), Budget{0, 1}, false},
		"of the whole, not of each part":   {9, ptr(pct("0%")), ptr(pct("34%")), Budget{0, 3}, false},
		"nothing is one Pod":               {2, ptr(pct("0%")), ptr(pct("10%")), Budget{0, 1}, false},
		"no number":                        {2, ptr(pct("x")), nil, Budget{}, true},
		"a percentage of nothing, surge 0": {0, ptr(n(0)), ptr(pct("50%")), Budget{0, 1}, false},
	} {
		got, err := Resolve(c.replicas, c.surge, c.unav)
		if got != c.want || (err != nil) != c.wantAnyError {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	total := func(shares map[string]Budget) (b Budget) {
		for _, s := range shares {
			b.Surge += s.Surge
			b.Unavailable += s.Unavailable
		}
		return b
	}
	got := Split(Budget{3, 3}, map[string]int32{"a": 6, "b": 4, "c": 2}, "u")
	if total(got) != (Budget{3, 3}) || got["a"].Surge+got["a"].Unavailable != 3 {
		t.Errorf("%+v", got)
	}
	if got := Split(Budget{0, 1}, map[string]int32{"a": 1, "b": 1, "c": 1}, "u"); !cmp.Equal(got, map[string]Budget{"a": {0, 1}, "b": {0, 1}, "c": {0, 1}}) {
		t.Errorf("a cluster without a share is lent one Pod: %+v", got)
	}
	if got := Split(Budget{1, 0}, map[string]int32{"a": 5, "b": 0}, "u"); !cmp.Equal(got, map[string]Budget{"a": {1, 0}, "b": {1, 0}}) {
		t.Errorf("%+v", got)
	}
}

// No share is empty, and shares beyond the budget are loans of one Pod.
func TestSplitKeepsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.MapOfN(rapid.StringMatching("[a-h]"), rapid.Int32Range(0, 60), 1, 8).Draw(t, "replicas")
		var n int32
		for _, r := range replicas {
			n += r
		}
		b := Budget{rapid.Int32Range(0, n+3).Draw(t, "surge"), rapid.Int32Range(0, n+3).Draw(t, "unavailable")}
		if b == (Budget{}) {
			b.Unavailable = 1
		}
		var sum, own Budget
		for cluster, s := range Split(b, replicas, "u") {
			if s == (Budget{}) || s.Surge < 0 || s.Unavailable < 0 {
				t.Fatalf("%s gets %+v", cluster, s)
			}
			sum.Surge += s.Surge
			sum.Unavailable += s.Unavailable
			if s.Surge+s.Unavailable > 1 {
				own.Surge += s.Surge
				own.Unavailable += s.Unavailable
			}
		}
		if own.Surge > b.Surge || own.Unavailable > b.Unavailable {
			t.Fatalf("shares beyond loans are %+v of %+v", own, b)
		}
		if n > 0 && sum.Surge+sum.Unavailable < min(b.Surge+b.Unavailable, b.Surge+n) {
			t.Fatalf("only %+v of %+v is given out", sum, b)
		}
	})
}

func TestPlan(t *testing.T) {
	one := Budget{0, 1}
	c := func(name string, replicas int32, change ...func(*Cluster)) Cluster {
		out := Cluster{Name: name, Exists: true, Target: replicas, Present: replicas, Least: replicas, Available: replicas, InForce: one, Next: one}
		for _, f := range change {
			f(&out)
		}
		return out
	}
	outdated := func(c *Cluster) { c.Outdated = true }
	rolling := func(c *Cluster) { c.Rolling = true }
	broken := func(c *Cluster) { c.Available = 0 }
	target := func(n int32) func(*Cluster) { return func(c *Cluster) { c.Target = n } }
	available := func(n int32) func(*Cluster) { return func(c *Cluster) { c.Available = n } }
	fresh := func(c *Cluster) { c.Exists, c.Present, c.Available = false, 0, 0 }
	yes, no := func(n int32) Grant { return Grant{true, n} }, func(n int32) Grant { return Grant{false, n} }
	for name, x := range map[string]struct {
		w    Workload
		in   []Cluster
		want map[string]Grant
	}{
		"one Pod at a time: clusters in turns": {
			Workload{Desired: 6, Budget: one},
			[]Cluster{c("a", 2, outdated), c("b", 2, outdated), c("c", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": no(2), "c": no(2)},
		},
		"the next one waits for the one before": {
			Workload{Desired: 6, Budget: one},
			[]Cluster{c("a", 2, rolling), c("b", 2, outdated), c("c", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": no(2), "c": no(2)},
		},
		"done, the next one": {
			Workload{Desired: 6, Budget: one},
			[]Cluster{c("a", 2), c("b", 2, outdated), c("c", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": yes(2), "c": no(2)},
		},
		"two at a time": {
			Workload{Desired: 6, Budget: Budget{0, 2}},
			[]Cluster{c("a", 2, outdated), c("b", 2, outdated), c("c", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": yes(2), "c": no(2)},
		},
		"a bad template stops after the first cluster": {
			Workload{Desired: 6, Budget: one},
			[]Cluster{c("a", 2, available(1)), c("b", 2, outdated), c("c", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": no(2), "c": no(2)},
		},
		"its repair goes where it is broken first": {
			Workload{Desired: 6, Budget: one},
			[]Cluster{c("a", 2, outdated), c("b", 2, outdated, available(1)), c("c", 2, outdated)},
			map[string]Grant{"a": no(2), "b": yes(2), "c": no(2)},
		},
		"all broken: nothing can be lost": {
			Workload{Desired: 4, Budget: one},
			[]Cluster{c("a", 2, outdated, broken), c("b", 2, outdated, broken)},
			map[string]Grant{"a": yes(2), "b": yes(2)},
		},
		"a lost cluster holds nothing up": {
			Workload{Desired: 2, Budget: one},
			[]Cluster{c("a", 2, rolling, func(c *Cluster) { c.Lost = true }), c("b", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": yes(2)},
		},
		"a closed one does not take the turn": {
			Workload{Desired: 4, Budget: one},
			[]Cluster{c("a", 2, outdated, func(c *Cluster) { c.Closed = true }), c("b", 2, outdated)},
			map[string]Grant{"a": no(2), "b": yes(2)},
		},
		"one that refuses comes last": {
			Workload{Desired: 4, Budget: one},
			[]Cluster{c("a", 2, outdated, func(c *Cluster) { c.Troubled = true }), c("b", 2, outdated)},
			map[string]Grant{"a": no(2), "b": yes(2)},
		},
		"recreated everywhere at once": {
			Workload{Desired: 4, Budget: one, AtOnce: true},
			[]Cluster{c("a", 2, outdated), c("b", 2, outdated)},
			map[string]Grant{"a": yes(2), "b": yes(2)},
		},
		"scaled up": {
			Workload{Desired: 8, Budget: one},
			[]Cluster{c("a", 2, target(5)), c("b", 0, fresh, target(3))},
			map[string]Grant{"a": yes(5), "b": yes(3)},
		},
		"scaled down": {
			Workload{Desired: 2, Budget: one},
			[]Cluster{c("a", 5, target(1)), c("b", 5, target(1))},
			map[string]Grant{"a": yes(1), "b": yes(1)},
		},
		"scaled down, Pods that are down go first": {
			Workload{Desired: 4, Budget: one},
			[]Cluster{c("a", 5, target(2)), c("b", 5, target(2), available(0))},
			map[string]Grant{"a": yes(3), "b": yes(2)},
		},
		"scaled to zero": {
			Workload{Budget: one},
			[]Cluster{c("a", 5, target(0), rolling), c("b", 5, target(0), available(2))},
			map[string]Grant{"a": yes(0), "b": yes(0)},
		},
		"moved: first up, within the surge": {
			Workload{Desired: 10, Budget: Budget{3, 0}},
			[]Cluster{c("a", 10, target(5)), c("b", 0, fresh, target(5))},
			map[string]Grant{"a": yes(10), "b": yes(3)},
		},
		"moved: down as what came up is available": {
			Workload{Desired: 10, Budget: Budget{3, 0}},
			[]Cluster{c("a", 10, target(5)), c("b", 3, target(5), available(2))},
			map[string]Grant{"a": yes(8), "b": yes(3)},
		},
		"moved without surge: first down": {
			Workload{Desired: 10, Budget: Budget{0, 2}},
			[]Cluster{c("a", 10, target(5)), c("b", 0, fresh, target(5))},
			map[string]Grant{"a": yes(8), "b": yes(0)},
		},
		"a cluster is left when the others have all": {
			Workload{Desired: 2, Budget: Budget{1, 0}},
			[]Cluster{c("a", 2, target(0)), c("b", 2)},
			map[string]Grant{"a": yes(0), "b": yes(2)},
		},
		"nothing is given up for a lost cluster": {
			Workload{Desired: 0, Missing: 2, Budget: Budget{1, 0}},
			[]Cluster{c("a", 2, target(0)), c("b", 2, func(c *Cluster) { c.Lost = true })},
			map[string]Grant{"a": yes(2), "b": yes(2)},
		},
		"what may still be there is not given up": {
			Workload{Desired: 2, Budget: one},
			[]Cluster{c("a", 1, target(0), rolling, available(2)), c("b", 1, target(2), available(0))},
			map[string]Grant{"a": yes(1), "b": yes(1)},
		},
		"rollout and move share the budget": {
			Workload{Desired: 4, Budget: one},
			[]Cluster{c("a", 3, target(2), outdated), c("b", 1, target(2))},
			map[string]Grant{"a": yes(3), "b": yes(1)},
		},
		"an autoscaler's number stays": {
			Workload{Desired: 9, Budget: one},
			[]Cluster{c("a", 7, target(2), func(c *Cluster) { c.Autoscaled = true }), c("b", 2)},
			map[string]Grant{"a": yes(7), "b": yes(2)},
		},
	} {
		if diff := cmp.Diff(x.want, Plan(x.w, x.in)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What counts as safe is what is there however far the controllers go with all
// that they were told.
func TestSafe(t *testing.T) {
	for name, c := range map[string]struct {
		available, least, present, down, want int32
	}{
		"at rest":                        {5, 5, 5, 0, 5},
		"may take one down":              {5, 5, 5, 1, 4},
		"was told less before":           {5, 2, 5, 1, 1},
		"not all are available":          {3, 5, 5, 1, 3},
		"is told less now":               {5, 5, 2, 0, 2},
		"may take down more than it has": {1, 1, 1, 3, 0},
	} {
		e := &entry{Cluster: Cluster{Available: c.available, Least: c.least}}
		if got := e.safeWith(c.present, c.down); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
