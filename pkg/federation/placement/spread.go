package placement

import (
	"cmp"
	"fmt"
	"slices"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// spread chooses the clusters that satisfy the spread constraints: as many as
// they allow, those in use first.
func (in *Input) spread(fit []candidate, m method) ([]candidate, string) {
	if len(in.Placement.SpreadConstraints) == 0 {
		return fit, ""
	}
	in.prefer(fit, false)
	chosen, problem := in.choose(fit)
	if problem != "" || !in.Fresh && len(in.Previous) > 0 || !m.needsRoom() || in.Overcommit {
		return chosen, problem
	}
	if roomOf(chosen, true) >= int64(in.Replicas) {
		return chosen, ""
	}
	roomy := slices.Clone(fit)
	in.prefer(roomy, true)
	if other, problem := in.choose(roomy); problem == "" && roomOf(other, true) > roomOf(chosen, true) {
		return other, ""
	}
	return chosen, ""
}

// roomOf sums what there is room for; fresh counts what is held, too.
func roomOf(cs []candidate, fresh bool) (n int64) {
	for _, c := range cs {
		if n += c.room; fresh {
			n += int64(c.held)
		}
	}
	return n
}

// prefer sorts candidates: those in use first, the most replicas first, then
// the tier, the weight, the room, and the hash of the template. byRoom puts the
// room first.
func (in *Input) prefer(cs []candidate, byRoom bool) {
	slices.SortStableFunc(cs, func(a, b candidate) int {
		room := cmp.Compare(b.room+int64(b.held), a.room+int64(a.held))
		if byRoom && room != 0 {
			return room
		}
		return cmp.Or(
			first(a.had, b.had),
			cmp.Compare(b.held, a.held),
			cmp.Compare(a.tier, b.tier),
			cmp.Compare(b.weight, a.weight),
			room,
			cmp.Compare(tieBreak(in.UID, a.Name), tieBreak(in.UID, b.Name)),
		)
	})
}

// first puts what has a property before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// constraint is a spread constraint with the groups that are chosen so far.
type constraint struct {
	policyv1alpha1.SpreadConstraint
	chosen map[string]int // clusters by group
}

func (s *constraint) by() string { return cmp.Or(s.SpreadByLabel, s.SpreadByField, "cluster") }

// groups that a cluster belongs to; it may extend over several zones.
func (s *constraint) groups(c *Cluster) []string {
	one := func(v string) []string {
		if v == "" {
			return nil
		}
		return []string{v}
	}
	switch {
	case s.SpreadByLabel != "":
		return one(c.Labels[s.SpreadByLabel])
	case s.SpreadByField == "region":
		return one(c.Region)
	case s.SpreadByField == "provider":
		return one(c.Provider)
	case s.SpreadByField == "zone":
		return c.Zones
	}
	return one(c.Name)
}

// of is groups, but a cluster in use is never left out for having none.
func (s *constraint) of(c *candidate) []string {
	g := s.groups(c.Cluster)
	if len(g) == 0 && c.had {
		return []string{""}
	}
	return g
}

func (s *constraint) adds(c *candidate) (n int) {
	for _, g := range s.of(c) {
		if s.chosen[g] == 0 {
			n++
		}
	}
	return n
}

func (s *constraint) put(c *candidate, n int) {
	for _, g := range s.of(c) {
		if s.chosen[g] += n; s.chosen[g] == 0 {
			delete(s.chosen, g)
		}
	}
}

// selection is a choice on the way.
type selection struct {
	candidates  []candidate
	taken       []bool
	constraints []*constraint
	steps       int
}

// maxSteps bounds the search: what takes longer counts as impossible.
const maxSteps = 20000

// choose first satisfies what is asked for at least, then takes all that is
// allowed at most, both in the order of the candidates.
func (in *Input) choose(ordered []candidate) ([]candidate, string) {
	s := selection{}
	for _, c := range in.Placement.SpreadConstraints {
		s.constraints = append(s.constraints, &constraint{SpreadConstraint: c, chosen: map[string]int{}})
	}
	for _, c := range ordered {
		if !slices.ContainsFunc(s.constraints, func(x *constraint) bool { return len(x.of(&c)) == 0 }) {
			s.candidates = append(s.candidates, c)
		}
	}
	s.taken = make([]bool, len(s.candidates))
	if !s.satisfy() {
		return nil, s.problem()
	}
	for i := range s.candidates {
		if !s.taken[i] && s.allowed(&s.candidates[i]) {
			s.take(i, true)
		}
	}
	var out []candidate
	for i, c := range s.candidates {
		if s.taken[i] {
			out = append(out, c)
		}
	}
	return out, ""
}

func (s *selection) allowed(c *candidate) bool {
	return !slices.ContainsFunc(s.constraints, func(x *constraint) bool {
		n := x.adds(c)
		return n > 0 && x.MaxGroups > 0 && len(x.chosen)+n > x.MaxGroups
	})
}

func (s *selection) take(i int, in bool) {
	n := 1
	if !in {
		n = -1
	}
	s.taken[i] = in
	for _, x := range s.constraints {
		x.put(&s.candidates[i], n)
	}
}

// satisfy takes clusters until every constraint has its least number of groups.
func (s *selection) satisfy() bool {
	at := slices.IndexFunc(s.constraints, func(x *constraint) bool { return len(x.chosen) < max(x.MinGroups, 1) })
	if at < 0 {
		return true
	}
	for i := range s.candidates {
		c := &s.candidates[i]
		if s.steps++; s.steps > maxSteps {
			return false
		}
		if s.taken[i] || s.constraints[at].adds(c) == 0 || !s.allowed(c) {
			continue
		}
		s.take(i, true)
		if s.satisfy() {
			return true
		}
		s.take(i, false)
	}
	return false
}

// problem names the constraint that cannot be satisfied even alone, or all.
func (s *selection) problem() string {
	for _, x := range s.constraints {
		all := map[string]struct{}{}
		for i := range s.candidates {
			for _, g := range x.of(&s.candidates[i]) {
				all[g] = struct{}{}
			}
		}
		if least := max(x.MinGroups, 1); len(all) < least {
			return fmt.Sprintf("spreadConstraints ask for %d groups by %s, %d can be used", least, x.by(), len(all))
		}
	}
	return "no choice of clusters satisfies all spreadConstraints together"
}
