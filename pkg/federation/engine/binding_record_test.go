package engine

import (
	"testing"
	"time"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// A deleted policy moves nothing: the default policy speaks for new templates and
// for those that it has spoken for.
func TestDefaultPolicySpeaks(t *testing.T) {
	policy := &placement.Policy{Name: "default", UID: "d", Default: true}
	own := &placement.Policy{Name: "own", Namespace: "ns", UID: "o"}
	index, errs := placement.NewIndex([]*placement.Policy{policy, own})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	placed := func(claim string) *binding {
		b := &binding{Spec: workv1alpha2.ResourceBindingSpec{Placement: &policyv1alpha1.Placement{}}}
		if claim != "" {
			b.Labels = map[string]string{marks.ClusterPolicyID: claim}
		}
		return b
	}
	for name, c := range map[string]struct {
		policy *placement.Policy
		b      *binding
		want   bool
	}{
		"new":                     {policy, nil, true},
		"needed by others so far": {policy, &binding{}, true},
		"its own":                 {policy, placed("d"), true},
		"of a deleted policy":     {policy, placed("gone"), false},
		"of nobody any more":      {policy, placed(""), false},
		"of another policy":       {policy, placed("o"), false},
		"a policy of the user":    {own, placed("gone"), true},
	} {
		if got := speaks(index, c.policy, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A mistaken placement that is taken back is known as such, for as long as
// removals are stopped; the same mistake once more, another one, or what was
// once before a placement that has stood, is not.
func TestMovesAreNoted(t *testing.T) {
	at := func(m1, m2, m3 int32) map[string]int32 {
		out := map[string]int32{}
		for name, n := range map[string]int32{"m1": m1, "m2": m2, "m3": m3} {
			if n > 0 {
				out[name] = n
			}
		}
		return out
	}
	const window = 10 * time.Minute
	type step struct {
		name    string
		after   time.Duration
		stopped bool
		to      map[string]int32
		nearer  bool
	}
	placed := step{"placed", 0, false, at(5, 5, 0), false}
	mistake := step{"a mistake", time.Hour, false, at(10, 0, 0), false}
	for name, steps := range map[string][]step{
		"taken back":                    {placed, mistake, {"back", time.Minute, true, at(5, 5, 0), true}},
		"taken back late":               {placed, mistake, {"back", 5 * time.Hour, true, at(5, 5, 0), true}},
		"taken back to a third one":     {placed, mistake, {"back", time.Minute, true, at(6, 4, 0), true}},
		"again, and taken back again":   {placed, mistake, {"back", time.Minute, true, at(5, 5, 0), true}, {"again", time.Minute, true, at(10, 0, 0), false}, {"back", time.Minute, true, at(5, 5, 0), true}},
		"another mistake on top":        {placed, mistake, {"another", time.Minute, true, at(0, 0, 10), false}, {"back", time.Minute, true, at(5, 5, 0), true}},
		"the opposite mistake":          {placed, mistake, {"opposite", time.Minute, true, at(0, 10, 0), false}},
		"nowhere":                       {placed, mistake, {"nowhere", time.Minute, true, at(0, 0, 0), false}},
		"a placement that stood, left":  {placed, mistake, {"by mistake", 5 * time.Hour, false, at(5, 5, 0), false}},
		"moved on purpose, then a slip": {placed, mistake, {"on", 5 * time.Hour, false, at(0, 0, 10), false}, {"slip", time.Hour, false, at(10, 0, 0), false}},
	} {
		now, here, m := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), at(0, 0, 0), move{}
		for _, s := range steps {
			now = now.Add(s.after)
			m, here = m.next(here, s.to, now, window, s.stopped), s.to
			again := m.next(here, here, now.Add(time.Hour), window, s.stopped)
			if got := m.nearer(here); got != s.nearer || !again.Since.Equal(m.Since) {
				t.Errorf("%s: %s: nearer %v, %+v; decided once more %+v", name, s.name, got, m, again)
			}
		}
	}
}
