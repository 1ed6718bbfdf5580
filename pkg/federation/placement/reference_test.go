package placement

import (
	"flag"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// A second implementation of the division of replicas, straight from the
// description of its semantics and as naive as possible: seat by seat.
//
//	static      each seat to the largest w/(2s+1)
//	dynamic     fresh: by available + assigned; more: the delta by available;
//	            fewer: by the previous assignment; too little room: nothing
//	aggregated  the same, over the shortest sufficient prefix of those in use,
//	            then by size
//
// Ties go to who has fewer than before, then by the hash of template and cluster.

type seatHolder struct {
	name       string
	size, held int
}

func seatBySeat(seats int, of []seatHolder, uid types.UID) map[string]int {
	got := map[string]int{}
	for ; seats > 0; seats-- {
		var best *seatHolder
		for i := range of {
			h := &of[i]
			if h.size == 0 {
				continue
			}
			if best == nil || goesBefore(h, best, got, uid) {
				best = h
			}
		}
		if best == nil {
			break
		}
		got[best.name]++
	}
	return got
}

func goesBefore(a, b *seatHolder, got map[string]int, uid types.UID) bool {
	// a.size/(2*got+1) > b.size/(2*got+1), without fractions.
	left, right := a.size*(2*got[b.name]+1), b.size*(2*got[a.name]+1)
	if left != right {
		return left > right
	}
	if aLess, bLess := got[a.name] < a.held, got[b.name] < b.held; aLess != bLess {
		return aLess
	}
	return tieBreak(uid, a.name) < tieBreak(uid, b.name)
}

func shortestPrefix(need int, of []seatHolder, uid types.UID) []seatHolder {
	out := slices.Clone(of)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if (a.held > 0) != (b.held > 0) {
			return a.held > 0
		}
		if a.size != b.size {
			return a.size > b.size
		}
		if a.held != b.held {
			return a.held > b.held
		}
		return tieBreak(uid, a.name) < tieBreak(uid, b.name)
	})
	sum := 0
	for i, h := range out {
		if sum += h.size; sum >= need {
			return out[:i+1]
		}
	}
	return nil
}

// naiveDivision is nil when the replicas do not fit.
func naiveDivision(kind string, total int, clusters []Cluster, sizes map[string]int64, held map[string]int, fresh bool, uid types.UID) map[string]int {
	assigned := 0
	for _, n := range held {
		assigned += n
	}
	holders := make([]seatHolder, 0, len(clusters))
	static := kind == "static"
	anyWeight := false
	for _, c := range clusters {
		anyWeight = anyWeight || sizes[c.Name] > 0
	}
	base, seats := map[string]int{}, total
	for _, c := range clusters {
		h := seatHolder{name: c.Name, size: int(sizes[c.Name]), held: held[c.Name]}
		switch {
		case static && !anyWeight:
			h.size = 1
		case static:
		case fresh || assigned == 0:
			h.size += h.held
		case total > assigned:
			seats, base[c.Name] = total-assigned, h.held
		default:
			h.size = h.held
		}
		holders = append(holders, h)
	}
	if !static {
		room := 0
		for _, h := range holders {
			room += h.size
		}
		if room < seats {
			return nil
		}
	}
	if kind == "aggregated" {
		holders = shortestPrefix(seats, holders, uid)
	}
	got := seatBySeat(seats, holders, uid)
	for name, n := range base {
		got[name] += n
	}
	for name, n := range got {
		if n == 0 {
			delete(got, name)
		}
	}
	return got
}

func TestDivisionAgreesWithTheReference(t *testing.T) {
	if err := flag.Set("rapid.checks", "10000"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flag.Set("rapid.checks", "100") }()
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		uid := types.UID(rapid.StringN(0, 3, -1).Draw(rt, "uid"))
		kind := rapid.SampledFrom([]string{"static", "dynamic", "aggregated"}).Draw(rt, "kind")
		total := rapid.IntRange(1, 60).Draw(rt, "total")
		fresh := rapid.Bool().Draw(rt, "fresh")
		var clusters []Cluster
		sizes, held := map[string]int64{}, map[string]int{}
		for i := range rapid.IntRange(1, 8).Draw(rt, "clusters") {
			name := fmt.Sprintf("m%d", i)
			clusters = append(clusters, Cluster{Name: name, Ready: true})
			sizes[name] = rapid.Int64Range(0, 20).Draw(rt, "size")
			if n := rapid.IntRange(0, 9).Draw(rt, "held"); n > 0 {
				held[name] = n
			}
		}
		if kind == "static" && !fresh {
			// By weight nothing is moved that need not be: from a division by
			// these weights, that is the division of the new total.
			held = naiveDivision(kind, rapid.IntRange(1, 60).Draw(rt, "before"), clusters, sizes, nil, true, uid)
		}
		in := Input{UID: uid, Placement: strategyOf(kind, clusters, sizes), Divisible: true, Replicas: int32(total), Clusters: clusters, Fresh: fresh}
		assigned := 0
		for name, n := range held {
			in.Previous = append(in.Previous, Target{Cluster: name, Replicas: int32(n)})
			assigned += n
		}
		if !Due(in) {
			return
		}
		want := naiveDivision(kind, total, clusters, sizes, held, fresh, uid)
		d := Place(in)
		how := "up"
		switch {
		case want == nil:
			how = "no room"
			if d.Reason != ReasonUnschedulable {
				rt.Fatalf("%s of %d: %v, but there is no room", kind, total, d)
			}
			want = held
		case fresh:
			how = "fresh"
		case total < assigned:
			how = "down"
		}
		seen[kind+" "+how]++
		got := map[string]int{}
		for _, x := range d.Targets {
			got[x.Cluster] = int(x.Replicas)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("%s of %d, sizes %v, held %v, fresh %v: %s", kind, total, sizes, held, fresh, diff)
		}
	})
	if t.Failed() {
		return
	}
	for _, what := range []string{
		"static fresh", "static up", "static down", "dynamic fresh", "dynamic up", "dynamic down", "dynamic no room",
		"aggregated fresh", "aggregated up", "aggregated down", "aggregated no room",
	} {
		if seen[what] < 100 {
			t.Errorf("only %d cases of %s", seen[what], what)
		}
	}
}
