package breaker

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fleetOf workloads, each with so many replicas in one of two clusters.
func sizes(replicas int64) (fleet, cluster Size) {
	return Size{replicas, replicas / 5}, Size{replicas / 2, replicas / 10}
}

func derived(i int, replicas int64) Removal {
	return Removal{Cluster: fmt.Sprint("m", i%2+1), Template: fmt.Sprint("web-", i), Class: Derived, Amount: Amount{replicas, 0}, Token: "x"}
}

func asked(i int, replicas int64) Removal {
	r := derived(i, replicas)
	r.Class, r.Objects = Asked, 1
	return r
}

// drill tries removals one after another and says how much went.
func drill(b *Breaker, fleet int64, removals []Removal) (gone Amount, waiting int) {
	f, c := sizes(fleet)
	for i, r := range removals {
		if v, _ := b.Ask(start.Add(time.Duration(i)*100*time.Millisecond), r, f, c); v == Go {
			gone = gone.plus(r.Amount)
		} else {
			waiting++
		}
	}
	return gone, waiting
}

func many(n int, one func(i int, replicas int64) Removal, replicas int64) []Removal {
	var out []Removal
	for i := range n {
		out = append(out, one(i, replicas))
	}
	return out
}

func TestDrills(t *testing.T) {
	inNamespace := func(i int, replicas int64) Removal {
		r := asked(i, replicas)
		r.Container, r.Contents = "namespace/shop", Amount{2000, 200}
		return r
	}
	smallNamespace := func(i int, replicas int64) Removal {
		r := asked(i, replicas)
		r.Container, r.Contents = "namespace/a", Amount{6, 10}
		return r
	}
	for name, c := range map[string]struct {
		fleet    int64
		removals []Removal
		most     int64 // replicas that may go
		least    int64
	}{
		"2,000 replicas lose their clusters":     {2000, many(200, derived, 10), 20, 20},
		"2,000 replicas by another weight":       {2000, many(200, derived, 5), 20, 20},
		"copies larger than the limit":           {2000, many(200, derived, 25), 0, 0},
		"a namespace of 2,000 replicas":          {2000, many(200, inNamespace, 10), 0, 0},
		"all Deployments of a namespace by name": {2000, many(200, asked, 10), 100, 100},
		"one large Deployment by name":           {2000, many(1, asked, 500), 500, 500},
		"two large Deployments by name":          {2000, many(2, asked, 500), 500, 500},
		"a Deployment of 6":                      {12, many(1, asked, 6), 6, 6},
		"applications of a small fleet":          {30, many(20, asked, 6), 120, 120},
		"a small namespace":                      {2000, many(2, smallNamespace, 3), 6, 6},
		"placements of a small fleet":            {30, many(10, derived, 6), 60, 60},
		"placements of a fleet of 1,000,000":     {1000000, many(3000, derived, 10), 10110, 9990},
	} {
		gone, waiting := drill(New(DefaultLimits()), c.fleet, c.removals)
		if gone.Replicas > c.most || gone.Replicas < c.least {
			t.Errorf("%s: %d replicas went, want %d to %d", name, gone.Replicas, c.least, c.most)
		}
		var all int64
		for _, r := range c.removals {
			all += r.Replicas
		}
		if (waiting > 0) != (gone.Replicas < all) {
			t.Errorf("%s: %d of %d replicas went and %d removals wait", name, gone.Replicas, all, waiting)
		}
	}
}

func TestOneCluster(t *testing.T) {
	l := DefaultLimits()
	b := New(l)
	fleet, cluster := Size{100000, 10000}, Size{1000, 100}
	var gone int64
	for i := range 100 {
		if v, _ := b.Ask(start, Removal{Cluster: "m1", Template: fmt.Sprint(i), Class: Derived, Amount: Amount{10, 1}}, fleet, cluster); v == Go {
			gone += 10
		}
	}
	if gone > 120 || gone < 100 {
		t.Errorf("%d of 1,000 replicas of one cluster went", gone)
	}
	if trips := b.Trips(); len(trips) != 1 || trips[0].ID != "derived@m1" {
		t.Errorf("trips: %+v", trips)
	}
	if v, why := b.Ask(start, Removal{Cluster: "m2", Template: "x", Class: Derived, Amount: Amount{10, 1}}, fleet, Size{1000, 100}); v != Go {
		t.Errorf("another cluster: %v, %s", v, why)
	}
}

func TestAnswers(t *testing.T) {
	b := New(DefaultLimits())
	all := many(10, derived, 10)
	fleet, cluster := sizes(2000)
	drill(b, 2000, all)
	waiting, known := b.Answer(start.Add(time.Minute), "derived", Approved, "op")
	if !known || len(waiting) != 8 {
		t.Fatalf("%v, %d wait", known, len(waiting))
	}
	for _, w := range waiting {
		if v, why := b.Ask(start.Add(time.Minute), w.Removal, fleet, cluster); v != Go {
			t.Errorf("approved: %v, %s", v, why)
		}
	}
	if v, _ := b.Ask(start.Add(time.Minute), derived(77, 10), fleet, cluster); v != Wait {
		t.Error("more than was approved went")
	}
	b.Settled("m2", "web-77")
	b.Tick(start.Add(time.Minute))
	if ended := b.Tick(start.Add(2 * time.Minute)); len(ended) != 1 {
		t.Errorf("nothing waits, and the trip goes on: %+v", b.Trips())
	}

	container := asked(50, 10)
	container.Container, container.Contents = "namespace/shop", Amount{2000, 200}
	if v, _ := b.Ask(start.Add(3*time.Minute), container, fleet, cluster); v != Wait {
		t.Errorf("a large namespace: %v", v)
	}
	b.Answer(start.Add(3*time.Minute), "namespace/shop", Rejected, "op")
	if v, _ := b.Ask(start.Add(3*time.Minute), container, fleet, cluster); v != Release {
		t.Errorf("a rejected deletion: %v", v)
	}
	b.Answer(start.Add(3*time.Minute), "namespace/shop", Approved, "op")
	if v, _ := b.Ask(start.Add(3*time.Minute), container, fleet, cluster); v != Go {
		t.Errorf("an approved namespace: %v", v)
	}
	if _, known := b.Answer(start, "nothing", Approved, "op"); known {
		t.Error("an answer to nothing")
	}
}

// What was approved goes in steps, with pauses between them, and no further.
func TestApprovedSteps(t *testing.T) {
	b := New(DefaultLimits())
	fleet, cluster := sizes(2000)
	step := Removal{Cluster: "m1", Template: "web", Class: Derived, Amount: Amount{25, 0}, Whole: Amount{75, 1}, Token: "first"}
	if v, _ := b.Ask(start, step, fleet, cluster); v != Wait {
		t.Fatal(v)
	}
	b.Answer(start, "derived", Approved, "op")
	now := start
	for _, token := range []string{"first", "second", "third"} {
		step.Token = token
		if v, why := b.Ask(now, step, fleet, cluster); v != Go {
			t.Fatalf("the %s step: %v, %s", token, v, why)
		}
		for range 10 {
			now = now.Add(20 * time.Second)
			b.Tick(now)
		}
	}
	step.Token, step.Amount, step.Whole = "last", Amount{0, 1}, Amount{}
	if v, why := b.Ask(now, step, fleet, cluster); v != Go {
		t.Fatalf("the end: %v, %s", v, why)
	}
	other := step
	other.Template, other.Amount = "api", Amount{25, 0}
	if v, _ := b.Ask(now, other, fleet, cluster); v != Wait {
		t.Errorf("what was not approved: %v", v)
	}
}

func TestRejectedPlacementsWait(t *testing.T) {
	b := New(DefaultLimits())
	r := derived(1, 1000)
	r.Objects = 1
	fleet, cluster := sizes(2000)
	b.Ask(start, r, fleet, cluster)
	b.Answer(start, "derived", Rejected, "op")
	if v, _ := b.Ask(start, r, fleet, cluster); v != Wait {
		t.Errorf("%v: what a placement leaves out is not given away", v)
	}
}

// A placement is taken back after it was carried out in part: what it has
// created goes, whatever is stopped and after a restart too, unless that would
// leave too little. Another placement is no way back.
func TestTakingBack(t *testing.T) {
	b := New(DefaultLimits())
	fleet, cluster := sizes(2000)
	mistake := Removal{Cluster: "m2", Template: "web", Class: Derived, Amount: Amount{50, 1}}
	if v, why := b.Ask(start, mistake, fleet, cluster); v != Wait {
		t.Errorf("a mistaken placement: %v, %s", v, why)
	}
	for range 2 {
		for name, c := range map[string]struct {
			change func(*Removal)
			want   Verdict
		}{
			"taken back":       {func(*Removal) {}, Go},
			"not surplus":      {func(r *Removal) { r.Surplus = false }, Wait},
			"another mistake":  {func(r *Removal) { r.Nearer = false }, Wait},
			"another template": {func(r *Removal) { r.Template = "api" }, Go},
			"no way back": {func(r *Removal) {
				r.Class, r.Template = Asked, "other"
				b.charges = append(b.charges, charge{at: start, class: Asked, template: "x", Amount: Amount{Replicas: 100}})
			}, Wait},
		} {
			r := Removal{Cluster: "m1", Template: "web", Class: Derived, Amount: Amount{50, 0}, Surplus: true, Nearer: true}
			c.change(&r)
			if v, why := b.Ask(start, r, fleet, cluster); v != c.want {
				t.Errorf("%s: %v, %s", name, v, why)
			}
		}
		if counted := b.used(Derived, ""); counted != (Amount{}) {
			t.Errorf("taking back was counted: %s", counted)
		}
		b = Restore(DefaultLimits(), b.State(), start)
	}
}

// What waited before a restart is waited for, until all has been tried.
func TestRestoredTripsEnd(t *testing.T) {
	fleet, cluster := sizes(2000)
	mistake := Removal{Cluster: "m2", Template: "web", Class: Derived, Amount: Amount{50, 1}}
	restored := func() *Breaker {
		b := New(DefaultLimits())
		if v, _ := b.Ask(start, mistake, fleet, cluster); v != Wait {
			t.Fatal("nothing is stopped")
		}
		return Restore(DefaultLimits(), b.State(), start)
	}
	b := restored()
	if ended := b.Tick(start.Add(calm + time.Second)); len(ended) > 0 {
		t.Error("a trip has ended before anything was tried")
	}
	if ended := b.Tick(start.Add(startTime + calm)); len(ended) != 1 {
		t.Error("a trip does not end although nothing waits")
	}
	b = restored()
	b.Tried(start)
	if ended := b.Tick(start.Add(calm)); len(ended) != 1 {
		t.Error("a trip does not end although all was tried and nothing waits")
	}
	b = restored()
	if v, _ := b.Ask(start, mistake, fleet, cluster); v != Wait {
		t.Error("the restored trip does not stop")
	}
	b.Tried(start)
	if ended := b.Tick(start.Add(calm)); len(ended) != 0 {
		t.Error("a trip has ended on which a removal waits")
	}
}

func TestTryingAgainIsNotCounted(t *testing.T) {
	b := New(DefaultLimits())
	fleet, cluster := sizes(2000)
	for range 50 {
		if v, why := b.Ask(start, derived(1, 10), fleet, cluster); v != Go {
			t.Fatalf("%v: %s", v, why)
		}
	}
	if got := b.used(Derived, ""); got.Replicas != 10 {
		t.Errorf("counted %v", got)
	}
}

// Whatever comes: in no window more goes unapproved than the limits say, and a
// restart forgets nothing.
func TestLimitsHold(t *testing.T) {
	l := DefaultLimits()
	rapid.Check(t, func(t *rapid.T) {
		b := New(l)
		now := start
		type went struct {
			at time.Time
			n  int64
		}
		var all []went
		whole := rapid.Int64Range(200, 5000).Draw(t, "fleet")
		fleet, cluster := sizes(whole)
		approved := false
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "pause")) * time.Second)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				raw, err := json.Marshal(b.State())
				if err != nil {
					t.Fatal(err)
				}
				var s State
				if err := json.Unmarshal(raw, &s); err != nil {
					t.Fatal(err)
				}
				b = Restore(l, s, now)
			case 1:
				b.Tick(now)
			case 2:
				if rapid.IntRange(0, 9).Draw(t, "approve") == 0 {
					_, known := b.Answer(now, "derived", Approved, "op")
					approved = approved || known
				}
			default:
				r := derived(i, rapid.Int64Range(1, 15).Draw(t, "replicas"))
				r.Cluster = rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "cluster")
				v, why := b.Ask(now, r, fleet, cluster)
				if why == "" {
					t.Fatal("no reason")
				}
				if v == Go {
					all = append(all, went{now, r.Replicas})
				}
			}
			if approved {
				return
			}
			var sum int64
			for _, w := range all {
				if now.Sub(w.at) < l.Window {
					sum += w.n
				}
			}
			if limit := max(20, (whole+sum)*1/100); sum > limit {
				t.Fatalf("%d of %d replicas went within the window, at most %d may", sum, whole, limit)
			}
		}
	})
}

// What a test system makes and deletes by name is not counted; what is older,
// derived or within a container is.
func TestShortLived(t *testing.T) {
	window := DefaultLimits().Window
	for name, c := range map[string]struct {
		change func(*Removal)
		stops  bool
	}{
		"young":           {change: func(r *Removal) { r.Age = window - time.Second }},
		"as old as that":  {change: func(r *Removal) { r.Age = window }, stops: true},
		"of unknown age":  {change: func(*Removal) {}, stops: true},
		"young, derived":  {change: func(r *Removal) { r.Age, r.Class = time.Minute, Derived }, stops: true},
		"young, together": {change: func(r *Removal) { r.Age, r.Container, r.Contents = time.Minute, "namespace/shop", Amount{3000, 3000} }, stops: true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Removal
			for i := range 3000 {
				r := asked(i, 1)
				c.change(&r)
				all = append(all, r)
			}
			if gone, waiting := drill(New(DefaultLimits()), 5000, all); (waiting > 0) != c.stops {
				t.Errorf("%s went, %d wait", gone, waiting)
			}
		})
	}
}
