package placement

import (
	"fmt"
	"slices"
	"strings"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// group is a compiled group of clusters with its overflow tiers.
type group struct {
	name  string
	tiers []Affinity
}

// groupsOf compiles the groups of a placement in order; without any there is
// one without a name.
func groupsOf(p *policyv1alpha1.Placement) ([]group, error) {
	if len(p.ClusterAffinities) == 0 {
		a, err := CompileAffinity(p.ClusterAffinity)
		if err != nil {
			return nil, err
		}
		return []group{{tiers: []Affinity{a}}}, nil
	}
	groups := make([]group, 0, len(p.ClusterAffinities))
	for i := range p.ClusterAffinities {
		term := &p.ClusterAffinities[i]
		g := group{name: term.AffinityName}
		tiers := []*policyv1alpha1.ClusterAffinity{&term.ClusterAffinity}
		for k := range term.OverflowAffinities {
			tiers = append(tiers, &term.OverflowAffinities[k].ClusterAffinity)
		}
		for _, t := range tiers {
			a, err := CompileAffinity(t)
			if err != nil {
				return nil, fmt.Errorf("clusterAffinities %s: %w", term.AffinityName, err)
			}
			g.tiers = append(g.tiers, a)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// candidate is a cluster that may be used.
type candidate struct {
	*Cluster
	tier   int
	held   int32
	had    bool // is a target already
	frozen bool
	weight int64 // by a static rule
	room   int64 // for more replicas, where it is known
}

// filter finds the clusters of a group that may be used, and counts why the
// others may not. What is a target already is only left out when the policy no
// longer selects the cluster, or the cluster has failed.
func (in *Input) filter(g group) (fit []candidate, rejected map[string]int) {
	previous := map[string]int32{}
	for _, t := range in.Previous {
		previous[t.Cluster] = t.Replicas
	}
	rejected = map[string]int{}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		held, had := previous[c.Name]
		tier := slices.IndexFunc(g.tiers, func(a Affinity) bool { return a.Matches(c) })
		if why := in.rejects(c, tier, had); why != "" {
			rejected[why]++
			continue
		}
		x := candidate{Cluster: c, tier: tier, held: held, had: had, frozen: !c.Ready}
		if c.Available != nil {
			x.room = max(*c.Available, 0)
		}
		fit = append(fit, x)
	}
	return fit, rejected
}

func (in *Input) rejects(c *Cluster, tier int, had bool) string {
	taint, tainted := untolerated(c.Taints, in.Placement.ClusterTolerations)
	switch {
	case tier < 0:
		return "not selected by clusterAffinity"
	case c.Failed != "":
		return c.Failed
	case had:
		return ""
	case !c.Ready:
		return "not ready"
	case tainted:
		return fmt.Sprintf("tainted %s", taint.ToString())
	case c.Lacks != "":
		return "lacks " + c.Lacks
	case in.Together != nil && !slices.Contains(in.Together, c.Name):
		return "without the rest of its affinity group"
	case slices.Contains(in.Apart, c.Name):
		return "used by its anti-affinity group"
	}
	return ""
}

func explain(all int, rejected map[string]int) string {
	reasons := make([]string, 0, len(rejected))
	for why, n := range rejected {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(reasons)
	return strings.TrimSuffix(fmt.Sprintf("0/%d clusters are available: %s", all, strings.Join(reasons, ", ")), ": ")
}
