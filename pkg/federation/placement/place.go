package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// Target is a cluster with its replicas.
type Target struct {
	Cluster  string
	Replicas int32
}

// Input is all that a placement depends on.
type Input struct {
	UID       types.UID
	Placement policyv1alpha1.Placement
	// Divisible is set for templates whose replicas can be divided.
	Divisible bool
	Replicas  int32
	Clusters  []Cluster
	Previous  []Target
	// Group is the affinity group in use.
	Group string
	// Fresh asks for a division that does not start from the previous one:
	// the placement has changed, or a new decision was asked for.
	Fresh bool
	// Restart tries the affinity groups from the first one again: somebody
	// asked for a new decision.
	Restart bool
	// Overcommit places what the known room is not enough for by weight all
	// the same.
	Overcommit bool
	// Together are the clusters that the template's affinity group allows;
	// nil allows all. Apart are those that hold one that it must not meet.
	Together, Apart []string
}

// Reasons of a decision.
const (
	ReasonSuccess       = "Success"
	ReasonNoCluster     = "NoClusterFit"
	ReasonTooFew        = "NotEnoughClusters"
	ReasonUnschedulable = "Unschedulable"
	ReasonInvalid       = "InvalidPlacement"
	ReasonPostponed     = "PartlyPostponed"
)

// Decision is where a template runs.
type Decision struct {
	Targets []Target // sorted by cluster
	// Group is the affinity group that was used.
	Group   string
	Reason  string
	Message string
}

// OK says whether targets could be found.
func (d Decision) OK() bool { return d.Reason == ReasonSuccess || d.Reason == ReasonPostponed }

// Place decides. When no decision is possible the previous targets stay as
// they are: a mistake in a policy takes nothing away.
func Place(in Input) Decision {
	groups, err := groupsOf(&in.Placement)
	if err != nil {
		return in.stay(ReasonInvalid, err.Error())
	}
	var failed Decision
	var messages []string
	for _, g := range groups[in.first(groups):] {
		d := in.placeIn(g)
		if d.Group = g.name; d.OK() {
			return d
		}
		if failed.Reason == "" {
			failed = d
		}
		if g.name != "" {
			d.Message = fmt.Sprintf("group %s: %s", g.name, d.Message)
		}
		messages = append(messages, d.Message)
	}
	return in.stay(failed.Reason, strings.Join(messages, "; "))
}

// stay keeps what is.
func (in *Input) stay(reason, message string) Decision {
	return Decision{Targets: in.Previous, Group: in.Group, Reason: reason, Message: message}
}

// first is the group to begin with: the one in use, so that a workload does not
// go back by itself. Where nobody knows which that is, it is the first one that
// selects a cluster in use.
func (in *Input) first(groups []group) int {
	if in.Restart || len(in.Previous) == 0 {
		return 0
	}
	if i := slices.IndexFunc(groups, func(g group) bool { return g.name == in.Group }); i >= 0 {
		return i
	}
	return max(slices.IndexFunc(groups, func(g group) bool {
		fit, _ := in.filter(g)
		return slices.ContainsFunc(fit, func(c candidate) bool { return c.had })
	}), 0)
}

// placeIn places within one group. Overflow tiers are joined one by one, until
// there is room; what a later tier holds stays there.
func (in *Input) placeIn(g group) Decision {
	all, rejected := in.filter(g)
	var d Decision
	for tier := range g.tiers {
		fit := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.tier > tier && (!c.had || in.Fresh) })
		if d = in.attempt(fit, rejected); d.OK() || d.Reason == ReasonInvalid {
			break
		}
	}
	return d
}

func (in *Input) attempt(fit []candidate, rejected map[string]int) Decision {
	if len(fit) == 0 {
		return in.stay(ReasonNoCluster, explain(len(in.Clusters), rejected))
	}
	m := in.methodFor(fit)
	if m == byStaticWeight {
		if err := weighStatically(in.Placement.ReplicaScheduling.WeightPreference.StaticWeightList, fit); err != nil {
			return in.stay(ReasonInvalid, err.Error())
		}
		fit = slices.DeleteFunc(fit, func(c candidate) bool { return c.weight == 0 && !c.had })
	}
	chosen, problem := in.spread(fit, m)
	if problem != "" {
		return in.stay(ReasonTooFew, problem)
	}
	if m == whole {
		return in.duplicate(chosen)
	}
	return in.divide(chosen, m)
}

func (in *Input) divided() bool {
	r := in.Placement.ReplicaScheduling
	return in.Divisible && r != nil && r.ReplicaSchedulingType != policyv1alpha1.ReplicasDuplicated
}

func (in *Input) duplicate(fit []candidate) Decision {
	d := Decision{Reason: ReasonSuccess}
	for _, c := range fit {
		t := Target{Cluster: c.Name}
		if in.Divisible {
			t.Replicas = in.Replicas
		}
		d.Targets = append(d.Targets, t)
	}
	return finish(d)
}

func (in *Input) divide(fit []candidate, m method) Decision {
	if in.Replicas == 0 {
		return in.scaledToZero(fit)
	}
	if !in.Fresh {
		fit = withoutUnmade(fit, in.Replicas, in.UID)
	}
	parts, missing := in.parts(fit, m)
	if missing != "" {
		return in.stay(ReasonUnschedulable, missing)
	}
	d := Decision{Reason: ReasonSuccess}
	var got int32
	for cluster, n := range parts {
		if got += n; n > 0 {
			d.Targets = append(d.Targets, Target{Cluster: cluster, Replicas: n})
		}
	}
	switch {
	case got < in.Replicas && len(d.Targets) == 0:
		return in.stay(ReasonNoCluster, "no ready cluster has a weight")
	case got != in.Replicas:
		d.Reason = ReasonPostponed
		d.Message = fmt.Sprintf("%d of %d replicas assigned: clusters that are not ready keep what they have", got, in.Replicas)
	}
	return finish(d)
}

// scaledToZero keeps the copies where they are, so that nothing is created or
// deleted by scaling to zero and back.
func (in *Input) scaledToZero(fit []candidate) Decision {
	d := Decision{Reason: ReasonSuccess}
	for _, c := range fit {
		if !c.had && len(in.Previous) > 0 && !in.Fresh {
			continue
		}
		t := Target{Cluster: c.Name}
		if c.frozen {
			t.Replicas = c.held
			if c.held > 0 {
				d.Reason, d.Message = ReasonPostponed, "clusters that are not ready keep what they have"
			}
		}
		d.Targets = append(d.Targets, t)
	}
	return finish(d)
}

func finish(d Decision) Decision {
	slices.SortFunc(d.Targets, func(a, b Target) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return d
}

// Due says whether replicas must be divided anew; a set of targets that still
// fits is left alone, whatever the weights would say today.
func Due(in Input) bool {
	if in.Fresh || len(in.Previous) == 0 || !in.divided() {
		return true
	}
	groups, err := groupsOf(&in.Placement)
	if err != nil {
		return true
	}
	g := groups[in.first(groups)]
	if g.name != in.Group {
		return true
	}
	fit, _ := in.filter(g)
	var total int32
	for _, t := range in.Previous {
		if !slices.ContainsFunc(fit, func(c candidate) bool { return c.Name == t.Cluster }) {
			return true
		}
		total += t.Replicas
	}
	return total != in.Replicas
}
