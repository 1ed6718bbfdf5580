package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// method says by what replicas are divided.
type method int

const (
	// whole: every cluster gets all.
	whole method = iota
	equally
	byStaticWeight
	// byRoom in proportion to what the clusters have room for.
	byRoom
	// aggregated in as few clusters as have room.
	aggregated
)

func (m method) needsRoom() bool { return m == byRoom || m == aggregated }

// methodFor finds the method. If one cluster's room is not known, nobody's
// counts for weights.
func (in *Input) methodFor(fit []candidate) method {
	if !in.divided() {
		return whole
	}
	r := in.Placement.ReplicaScheduling
	switch prefs := r.WeightPreference; {
	case r.ReplicaDivisionPreference == policyv1alpha1.DivisionAggregated:
		return aggregated
	case prefs != nil && prefs.DynamicWeight != "":
		if slices.ContainsFunc(fit, func(c candidate) bool { return c.Available == nil && !c.frozen }) {
			return equally
		}
		return byRoom
	case prefs != nil && len(prefs.StaticWeightList) > 0:
		return byStaticWeight
	}
	return equally
}

// weighStatically gives every candidate the largest weight of the rules that
// match it; where no rule matches any, all are equal.
func weighStatically(list []policyv1alpha1.StaticClusterWeight, fit []candidate) error {
	matched := false
	for i := range list {
		affinity, err := CompileAffinity(&list[i].TargetCluster)
		if err != nil {
			return fmt.Errorf("staticWeightList: %w", err)
		}
		for k := range fit {
			if c := &fit[k]; affinity.Matches(c.Cluster) {
				c.weight = max(c.weight, list[i].Weight)
				matched = true
			}
		}
	}
	for k := range fit {
		if !matched {
			fit[k].weight = 1
		}
	}
	return nil
}

// withoutUnmade takes what is to go from those clusters first that have not been
// able to make what they were given, as one cluster takes Pods that are not
// ready first: fewer replicas must cost none that runs.
func withoutUnmade(fit []candidate, total int32, uid types.UID) []candidate {
	excess := -int64(total)
	order := make([]int, 0, len(fit))
	for i, c := range fit {
		excess += int64(c.held)
		if !c.frozen && c.Unmade > 0 && c.held > 0 {
			order = append(order, i)
		}
	}
	if excess <= 0 || len(order) == 0 {
		return fit
	}
	out := slices.Clone(fit)
	slices.SortFunc(order, func(i, j int) int {
		a, b := out[i], out[j]
		return cmp.Or(
			cmp.Compare(b.Unmade, a.Unmade),
			cmp.Compare(tieBreak(uid, b.Name), tieBreak(uid, a.Name)),
			cmp.Compare(b.Name, a.Name),
		)
	})
	for _, i := range order {
		k := int32(min(excess, int64(out[i].Unmade), int64(out[i].held)))
		out[i].held -= k
		excess -= int64(k)
	}
	return out
}

// parts divides; a text says what is missing when there is not enough room.
func (in *Input) parts(fit []candidate, m method) (parts map[string]int32, missing string) {
	if !m.needsRoom() {
		return Divide(in.Replicas, in.shares(fit, m), in.UID, in.Fresh), ""
	}
	parts = map[string]int32{}
	total := in.Replicas
	var active []candidate
	for _, c := range fit {
		if c.frozen {
			parts[c.Name] = c.held
			total -= min(total, c.held)
			continue
		}
		if c.Available == nil { // nothing speaks against any number
			c.room = int64(total)
		}
		active = append(active, c)
	}
	f := filling{uid: in.UID, aggregate: m == aggregated, candidates: active, out: map[string]int32{}}
	left := f.to(int64(total), in.Fresh)
	switch {
	case left <= 0:
		maps.Copy(parts, f.out)
		return parts, ""
	case in.Overcommit || len(active) == 0:
		return Divide(in.Replicas, in.shares(fit, m), in.UID, in.Fresh), ""
	}
	return nil, f.missing(left)
}

// shares are the claims by weight. By room, that is what is held and what there
// is room for; where nobody has any, all are equal.
func (in *Input) shares(fit []candidate, m method) []Share {
	shares := make([]Share, 0, len(fit))
	weighted := false
	for _, c := range fit {
		s := Share{Cluster: c.Name, Held: c.held, Frozen: c.frozen}
		switch m {
		case byStaticWeight:
			s.Weight = c.weight
		case byRoom, aggregated:
			s.Weight = c.room + int64(c.held)
		case whole, equally:
		}
		weighted = weighted || s.Weight > 0 && !s.Frozen
		shares = append(shares, s)
	}
	for i := range shares {
		if !weighted {
			shares[i].Weight = 1
		}
	}
	return shares
}

// filling divides by room, tier by tier.
type filling struct {
	uid        types.UID
	aggregate  bool
	candidates []candidate
	out        map[string]int32
}

// to brings the sum to total and says how many have found no room. More
// replicas only add to what is held, fewer only take from it.
func (f *filling) to(total int64, fresh bool) (left int64) {
	var held int64
	for _, c := range f.candidates {
		f.out[c.Name] = c.held
		held += int64(c.held)
	}
	switch {
	case fresh || held == 0:
		for _, c := range f.candidates {
			f.out[c.Name] = 0
		}
		return f.add(total, func(c candidate) int64 { return c.room + int64(c.held) })
	case total > held:
		return f.add(total-held, func(c candidate) int64 { return c.room })
	case total < held:
		f.shrink(held - total)
	}
	return 0
}

func (f *filling) tiers() [][]candidate {
	var out [][]candidate
	for _, c := range f.candidates {
		for len(out) <= c.tier {
			out = append(out, nil)
		}
		out[c.tier] = append(out[c.tier], c)
	}
	return out
}

// add fills the tiers in order.
func (f *filling) add(n int64, room func(candidate) int64) (left int64) {
	for _, tier := range f.tiers() {
		var there int64
		for _, c := range tier {
			there += room(c)
		}
		part := min(n, there)
		for cluster, k := range f.split(part, tier, room) {
			f.out[cluster] += k
		}
		n -= part
	}
	return n
}

// shrink empties the tiers in reverse, in proportion to what each cluster has.
func (f *filling) shrink(n int64) {
	tiers := f.tiers()
	slices.Reverse(tiers)
	for _, tier := range tiers {
		var held int64
		for _, c := range tier {
			held += int64(c.held)
		}
		part := min(n, held)
		kept := f.split(held-part, tier, func(c candidate) int64 { return int64(c.held) })
		for _, c := range tier {
			f.out[c.Name] = kept[c.Name]
		}
		n -= part
	}
}

// split divides by size, which sums up to n at least, so that nobody gets more
// than its size.
func (f *filling) split(n int64, among []candidate, size func(candidate) int64) map[string]int32 {
	if f.aggregate {
		among = f.fewest(n, among, size)
	}
	shares := make([]Share, 0, len(among))
	for _, c := range among {
		shares = append(shares, Share{Cluster: c.Name, Weight: size(c), Held: c.held})
	}
	return Divide(int32(n), shares, f.uid, true)
}

// fewest are the first that suffice: those in use, then by size.
func (f *filling) fewest(n int64, among []candidate, size func(candidate) int64) []candidate {
	sorted := slices.Clone(among)
	slices.SortFunc(sorted, func(a, b candidate) int {
		return cmp.Or(
			first(a.held > 0, b.held > 0),
			cmp.Compare(size(b), size(a)),
			cmp.Compare(b.held, a.held),
			cmp.Compare(tieBreak(f.uid, a.Name), tieBreak(f.uid, b.Name)),
			cmp.Compare(a.Name, b.Name),
		)
	})
	for i, c := range sorted {
		if n -= size(c); n <= 0 {
			return sorted[:i+1]
		}
	}
	return sorted
}

func (f *filling) missing(left int64) string {
	rooms := make([]string, 0, len(f.candidates))
	for _, c := range f.candidates {
		rooms = append(rooms, fmt.Sprintf("%s %d", c.Name, c.room))
	}
	slices.Sort(rooms)
	return fmt.Sprintf("no room for %d replicas: the clusters have room for %s more", left, strings.Join(rooms, ", "))
}
