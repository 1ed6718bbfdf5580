package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func targets(pairs ...any) []Target {
	var out []Target
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Target{Cluster: pairs[i].(string), Replicas: int32(pairs[i+1].(int))})
	}
	return out
}

func TestAnchor(t *testing.T) {
	for name, c := range map[string]struct {
		held, next, want []Target
		divided, moved   bool
	}{
		"first placement":       {nil, targets("a", 3), targets("a", 3), true, false},
		"scaled up":             {targets("a", 1), targets("a", 2, "b", 1), targets("a", 2, "b", 1), true, false},
		"scaled down":           {targets("a", 3, "b", 3), targets("a", 1, "b", 2), targets("a", 1, "b", 2), true, false},
		"a cluster left out":    {targets("a", 3, "b", 3), targets("b", 3), targets("b", 3), true, false},
		"moved":                 {targets("a", 3), targets("b", 3), targets("a", 3), true, true},
		"shifted":               {targets("a", 3), targets("a", 2, "b", 1), targets("a", 3), true, true},
		"shifted and scaled up": {targets("a", 3), targets("a", 2, "b", 3), targets("a", 3, "b", 2), true, true},
		"shifted and down":      {targets("a", 6), targets("a", 1, "b", 2), targets("a", 3), true, true},
		"whole, moved":          {targets("a", 2), targets("b", 5), targets("a", 5), false, true},
		"whole, one more":       {targets("a", 2), targets("a", 2, "b", 2), targets("a", 2, "b", 2), false, false},
		"whole, scaled":         {targets("a", 2), targets("a", 5), targets("a", 5), false, false},
	} {
		got := Anchor(c.held, Decision{Targets: c.next, Reason: ReasonSuccess}, c.divided)
		if diff := cmp.Diff(c.want, got.Targets); diff != "" || (got.Reason == ReasonPostponed) != c.moved {
			t.Errorf("%s: %+v %s", name, got, diff)
		}
		if c.moved && !strings.Contains(got.Message, MoveVolumesAnnotation) {
			t.Errorf("%s: %q", name, got.Message)
		}
	}
}

// Whatever is decided: the sum is kept, and no cluster gains while another loses.
func TestAnchorNeverMoves(t *testing.T) {
	some := rapid.Custom(func(t *rapid.T) []Target {
		var out []Target
		for _, c := range []string{"a", "b", "c", "d"} {
			if rapid.Bool().Draw(t, c) {
				out = append(out, Target{Cluster: c, Replicas: int32(rapid.IntRange(0, 6).Draw(t, "n"))})
			}
		}
		return out
	})
	rapid.Check(t, func(t *rapid.T) {
		held, next := some.Draw(t, "held"), some.Draw(t, "next")
		got := Anchor(held, Decision{Targets: next, Reason: ReasonSuccess}, true)
		before, after := byCluster(held), byCluster(got.Targets)
		var gains, losses, sum, want int32
		for _, c := range sortedClusters(before, after) {
			gains += max(after[c]-before[c], 0)
			losses += max(before[c]-after[c], 0)
			sum += after[c]
		}
		for _, n := range byCluster(next) {
			want += n
		}
		if sum != want {
			t.Fatalf("%d replicas instead of %d: %v", sum, want, got)
		}
		if gains > 0 && losses > 0 {
			t.Fatalf("%v became %v", held, got.Targets)
		}
	})
}
