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
	// Fresh asks for a division that does not start from the previous one:
	// the placement has changed, or a new decision was asked for.
	Fresh bool
}

// Reasons of a decision.
const (
	ReasonSuccess   = "Success"
	ReasonNoCluster = "NoClusterFit"
	ReasonTooFew    = "NotEnoughClusters"
	ReasonInvalid   = "InvalidPlacement"
	ReasonPostponed = "PartlyPostponed"
)

// Decision is where a template runs.
type Decision struct {
	Targets []Target // sorted by cluster
	Reason  string
	Message string
}

// OK says whether targets could be found.
func (d Decision) OK() bool { return d.Reason == ReasonSuccess || d.Reason == ReasonPostponed }

// Place decides. When no decision is possible the previous targets stay as
// they are: a mistake in a policy takes nothing away.
func Place(in Input) Decision {
	fit, rejected, err := filter(in)
	if err != nil {
		return Decision{Targets: in.Previous, Reason: ReasonInvalid, Message: err.Error()}
	}
	if len(fit) == 0 {
		return Decision{Targets: in.Previous, Reason: ReasonNoCluster, Message: explain(len(in.Clusters), rejected)}
	}
	weights, err := weigh(in, fit)
	if err != nil {
		return Decision{Targets: in.Previous, Reason: ReasonInvalid, Message: err.Error()}
	}
	fit, ok := spread(in, fit)
	if !ok {
		return Decision{Targets: in.Previous, Reason: ReasonTooFew, Message: explain(len(in.Clusters), rejected)}
	}
	if !divided(in) {
		return whole(in, fit)
	}
	return divide(in, fit, weights)
}

// candidate is a cluster that may be used.
type candidate struct {
	*Cluster
	held     int32
	had      bool // is a target already
	frozen   bool
	capacity int64
}

func filter(in Input) (fit []candidate, rejected map[string]int, err error) {
	affinity, err := CompileAffinity(in.Placement.ClusterAffinity)
	if err != nil {
		return nil, nil, err
	}
	previous := map[string]int32{}
	for _, t := range in.Previous {
		previous[t.Cluster] = t.Replicas
	}
	rejected = map[string]int{}
	for i := range in.Clusters {
		c := &in.Clusters[i]
		held, had := previous[c.Name]
		taint, tainted := untolerated(c.Taints, in.Placement.ClusterTolerations)
		switch {
		case !affinity.Matches(c):
			rejected["not selected by clusterAffinity"]++
		case !had && !c.Ready:
			rejected["not ready"]++
		case !had && tainted:
			rejected[fmt.Sprintf("tainted %s", taint.ToString())]++
		default:
			x := candidate{Cluster: c, held: held, had: had, frozen: !c.Ready}
			if c.Available != nil {
				x.capacity = *c.Available
			}
			fit = append(fit, x)
		}
	}
	return fit, rejected, nil
}

func explain(all int, rejected map[string]int) string {
	reasons := make([]string, 0, len(rejected))
	for why, n := range rejected {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(reasons)
	return strings.TrimSuffix(fmt.Sprintf("0/%d clusters are available: %s", all, strings.Join(reasons, ", ")), ": ")
}

// spread keeps at most maxGroups clusters: those in use first, most replicas
// first, then those with the most room, then by the hash of the template.
func spread(in Input, fit []candidate) ([]candidate, bool) {
	for _, s := range in.Placement.SpreadConstraints {
		if len(fit) < s.MinGroups {
			return nil, false
		}
		if s.MaxGroups == 0 || len(fit) <= s.MaxGroups {
			continue
		}
		slices.SortStableFunc(fit, func(a, b candidate) int {
			if a.had != b.had {
				if a.had {
					return -1
				}
				return 1
			}
			return cmp.Or(
				cmp.Compare(b.held, a.held),
				cmp.Compare(b.capacity, a.capacity),
				cmp.Compare(tieBreak(in.UID, a.Name), tieBreak(in.UID, b.Name)),
			)
		})
		fit = fit[:s.MaxGroups]
	}
	return fit, true
}

func divided(in Input) bool {
	r := in.Placement.ReplicaScheduling
	return in.Divisible && r != nil && r.ReplicaSchedulingType != policyv1alpha1.ReplicasDuplicated
}

func whole(in Input, fit []candidate) Decision {
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

func divide(in Input, fit []candidate, weights map[string]int64) Decision {
	if in.Replicas == 0 {
		return scaledToZero(in, fit)
	}
	shares := make([]Share, 0, len(fit))
	for _, c := range fit {
		shares = append(shares, Share{Cluster: c.Name, Weight: weights[c.Name], Held: c.held, Frozen: c.frozen})
	}
	d := Decision{Reason: ReasonSuccess}
	var got int32
	for cluster, n := range Divide(in.Replicas, shares, in.UID, in.Fresh) {
		if got += n; n > 0 {
			d.Targets = append(d.Targets, Target{Cluster: cluster, Replicas: n})
		}
	}
	switch {
	case got < in.Replicas && len(d.Targets) == 0:
		return Decision{Targets: in.Previous, Reason: ReasonNoCluster, Message: "no ready cluster has a weight"}
	case got != in.Replicas:
		d.Reason = ReasonPostponed
		d.Message = fmt.Sprintf("%d of %d replicas assigned: clusters that are not ready keep what they have", got, in.Replicas)
	}
	return finish(d)
}

// scaledToZero keeps the copies where they are, so that nothing is created or
// deleted by scaling to zero and back.
func scaledToZero(in Input, fit []candidate) Decision {
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

// weigh gives every candidate its weight.
func weigh(in Input, fit []candidate) (map[string]int64, error) {
	weights := make(map[string]int64, len(fit))
	var prefs *policyv1alpha1.ClusterPreferences
	if r := in.Placement.ReplicaScheduling; r != nil {
		prefs = r.WeightPreference
	}
	switch {
	case prefs != nil && prefs.DynamicWeight != "":
		weighByCapacity(fit, weights)
	case prefs != nil:
		if err := weighStatically(prefs.StaticWeightList, fit, weights); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(fit, func(c candidate) bool { return weights[c.Name] > 0 }) {
		for _, c := range fit {
			weights[c.Name] = 1
		}
	}
	return weights, nil
}

// weighByCapacity: room for more plus what is held. If one cluster's room is
// not known, nobody's counts.
func weighByCapacity(fit []candidate, weights map[string]int64) {
	if slices.ContainsFunc(fit, func(c candidate) bool { return c.Available == nil && !c.frozen }) {
		return
	}
	for _, c := range fit {
		weights[c.Name] = max(c.capacity, 0) + int64(c.held)
	}
}

func weighStatically(list []policyv1alpha1.StaticClusterWeight, fit []candidate, weights map[string]int64) error {
	for _, w := range list {
		affinity, err := CompileAffinity(&w.TargetCluster)
		if err != nil {
			return fmt.Errorf("staticWeightList: %w", err)
		}
		for _, c := range fit {
			if affinity.Matches(c.Cluster) {
				weights[c.Name] = max(weights[c.Name], w.Weight)
			}
		}
	}
	return nil
}

// Due says whether replicas must be divided anew; a set of targets that still
// fits is left alone, whatever the weights would say today.
func Due(in Input) bool {
	if in.Fresh || len(in.Previous) == 0 || !divided(in) {
		return true
	}
	fit, _, err := filter(in)
	if err != nil {
		return true
	}
	var total int32
	for _, t := range in.Previous {
		if !slices.ContainsFunc(fit, func(c candidate) bool { return c.Name == t.Cluster }) {
			return true
		}
		total += t.Replicas
	}
	return total != in.Replicas
}
