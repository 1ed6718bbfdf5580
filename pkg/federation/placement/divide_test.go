package placement

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func equalShares(names ...string) []Share {
	var s []Share
	for _, n := range names {
		s = append(s, Share{Cluster: n, Weight: 1})
	}
	return s
}

func TestDivideByHand(t *testing.T) {
	servers := []Share{{Cluster: "m1", Weight: 170}, {Cluster: "m2", Weight: 110}, {Cluster: "m3", Weight: 60}}
	for _, c := range []struct {
		name   string
		total  int32
		shares []Share
		fresh  bool
		want   map[string]int32
	}{
		{"five", 5, servers, true, map[string]int32{"m1": 2, "m2": 2, "m3": 1}},
		{"six", 6, servers, true, map[string]int32{"m1": 3, "m2": 2, "m3": 1}},
		{"seven", 7, servers, true, map[string]int32{"m1": 4, "m2": 2, "m3": 1}},
		{"one to two", 6, []Share{{Cluster: "a", Weight: 1}, {Cluster: "b", Weight: 2}}, true, map[string]int32{"a": 2, "b": 4}},
		{"a weight grows", 6, []Share{
			{Cluster: "a", Weight: 2, Held: 2},
			{Cluster: "b", Weight: 1, Held: 2},
			{Cluster: "c", Weight: 1, Held: 1},
			{Cluster: "d", Weight: 1, Held: 1},
		}, true, map[string]int32{"a": 3, "b": 1, "c": 1, "d": 1}},
		{"a tie stays where it is", 3, []Share{{Cluster: "a", Weight: 1, Held: 1}, {Cluster: "b", Weight: 1, Held: 2}}, true, map[string]int32{"a": 1, "b": 2}},
		{"frozen keeps, the rest is for others", 10, []Share{{Cluster: "a", Weight: 1, Held: 5, Frozen: true}, {Cluster: "b", Weight: 1}}, false, map[string]int32{"a": 5, "b": 5}},
		{"frozen keeps on the way down", 2, []Share{{Cluster: "a", Weight: 1, Held: 5, Frozen: true}, {Cluster: "b", Weight: 1, Held: 3}}, false, map[string]int32{"a": 5, "b": 0}},
		{"a recovered cluster is filled up", 10, []Share{{Cluster: "a", Weight: 1}, {Cluster: "b", Weight: 1, Held: 5}}, false, map[string]int32{"a": 5, "b": 5}},
		{"a new cluster takes nothing away", 9, []Share{{Cluster: "a", Weight: 1, Held: 4}, {Cluster: "b", Weight: 1, Held: 4}, {Cluster: "c", Weight: 1}}, false, map[string]int32{"a": 4, "b": 4, "c": 1}},
		{"weight zero gets nothing new", 4, []Share{{Cluster: "a", Weight: 0, Held: 1}, {Cluster: "b", Weight: 1}}, false, map[string]int32{"a": 1, "b": 3}},
		{"weight zero loses first", 2, []Share{{Cluster: "a", Weight: 0, Held: 1}, {Cluster: "b", Weight: 1, Held: 3}}, false, map[string]int32{"a": 0, "b": 2}},
		{"nothing to give to", 4, nil, true, map[string]int32{}},
		{"nobody has a weight", 4, []Share{{Cluster: "a"}}, true, map[string]int32{"a": 0}},
		{"zero", 0, equalShares("a", "b"), true, map[string]int32{"a": 0, "b": 0}},
	} {
		if diff := cmp.Diff(c.want, Divide(c.total, c.shares, "uid", c.fresh)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// naive awards seat by seat, as the reference says.
func naive(total int32, shares []Share, uid types.UID) map[string]int32 {
	n := map[string]int32{}
	for _, s := range shares {
		n[s.Cluster] = 0
	}
	for range total {
		best := -1
		for i, s := range shares {
			if s.Weight == 0 {
				continue
			}
			if best < 0 {
				best = i
				continue
			}
			b := shares[best]
			l, r := s.Weight*int64(2*n[b.Cluster]+1), b.Weight*int64(2*n[s.Cluster]+1)
			sh, bh := n[s.Cluster] < s.Held, n[b.Cluster] < b.Held
			switch {
			case l > r, l == r && sh && !bh,
				l == r && sh == bh && tieBreak(uid, s.Cluster) < tieBreak(uid, b.Cluster):
				best = i
			}
		}
		if best < 0 {
			break
		}
		n[shares[best].Cluster]++
	}
	return n
}

func drawShares(t *rapid.T, weights *rapid.Generator[int64]) []Share {
	var shares []Share
	for i := range rapid.IntRange(1, 12).Draw(t, "clusters") {
		shares = append(shares, Share{Cluster: fmt.Sprintf("m%d", i), Weight: weights.Draw(t, "weight")})
	}
	return shares
}

func TestDivideAgreesWithTheNaiveMethod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := drawShares(t, rapid.Int64Range(0, 300))
		for i := range shares {
			shares[i].Held = rapid.Int32Range(0, 20).Draw(t, "held")
		}
		total := rapid.Int32Range(0, 400).Draw(t, "total")
		if diff := cmp.Diff(naive(total, shares, "u"), Divide(total, shares, "u", true)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// With unchanged weights a fresh division and one of the difference are both
// monotone: nobody loses on the way up, nobody gains on the way down.
func TestScalingIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := drawShares(t, rapid.Int64Range(1, 1<<40))
		fresh := rapid.Bool().Draw(t, "fresh")
		var total int32
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			n := rapid.Int32Range(0, 300).Draw(t, "n")
			got := Divide(n, shares, "u", fresh)
			for i, s := range shares {
				v := got[s.Cluster]
				if n >= total && v < s.Held || n <= total && v > s.Held {
					t.Fatalf("from %d to %d moves %s from %d to %d", total, n, s.Cluster, s.Held, v)
				}
				shares[i].Held = v
			}
			if total = n; sumHeld(shares) != n {
				t.Fatalf("sum is %d, want %d", sumHeld(shares), n)
			}
		}
	})
}

func sumHeld(shares []Share) (n int32) {
	for _, s := range shares {
		n += s.Held
	}
	return n
}

// Only the difference moves, from any starting point, frozen clusters included.
func TestOnlyTheDifferenceMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := drawShares(t, rapid.Int64Range(0, 50))
		var held int32
		for i := range shares {
			shares[i].Held = rapid.Int32Range(0, 50).Draw(t, "held")
			shares[i].Frozen = rapid.Bool().Draw(t, "frozen")
			held += shares[i].Held
		}
		total := rapid.Int32Range(0, 600).Draw(t, "total")
		got := Divide(total, shares, "u", false)
		for _, s := range shares {
			v := got[s.Cluster]
			switch {
			case s.Frozen && v != s.Held:
				t.Fatalf("frozen %s moved from %d to %d", s.Cluster, s.Held, v)
			case total >= held && v < s.Held, total <= held && v > s.Held:
				t.Fatalf("%d to %d moves %s from %d to %d", held, total, s.Cluster, s.Held, v)
			}
		}
	})
}

func TestSingleReplicasSpread(t *testing.T) {
	count := map[string]int{}
	for i := range 300 {
		for c, n := range Divide(1, equalShares("m1", "m2", "m3"), types.UID(fmt.Sprintf("a1b2c3d4-%04d", i)), true) {
			count[c] += int(n)
		}
	}
	for c, n := range count {
		if n < 75 || n > 125 {
			t.Errorf("%s has %d of 300", c, n)
		}
	}
}

func TestHugeNumbersEndSoon(t *testing.T) {
	var shares []Share
	for i := range 1000 {
		shares = append(shares, Share{Cluster: fmt.Sprint("m", i), Weight: math.MaxInt64 - int64(i)})
	}
	start := time.Now()
	up := Divide(math.MaxInt32, shares, "u", true)
	var all int64
	for i := range shares {
		all += int64(up[shares[i].Cluster])
		shares[i].Held = up[shares[i].Cluster]
	}
	if all != math.MaxInt32 {
		t.Errorf("sum %d", all)
	}
	for c, n := range Divide(3, shares, "u", false) {
		if n > 1 {
			t.Errorf("%s has %d of 3", c, n)
		}
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}
