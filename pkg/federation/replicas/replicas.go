// Package replicas decides who speaks for spec.replicas of one copy: the
// engine, under a field manager of its own, or an autoscaler of the member.
//
//	autoscalers, template, copy -> InCharge
//	copy, granted replicas      -> Next -> the one write to make, if any
//	autoscaler's bounds, weights -> Bounds per cluster
//
// A field that loses its last manager in a server-side apply falls back to the
// API's default, one replica. So nobody lets go before somebody else has
// claimed the present value.
package replicas

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Copy is what the member shows of spec.replicas.
type Copy struct {
	Exists  bool
	Present int32
	// Content is set while the manager of the copy's content claims the field,
	// as it does from the creation on; Own when the manager of replicas does.
	Content, Own bool
}

// Step is a kind of write.
type Step int

const (
	// Nothing: the value is right, or not ours to set.
	Nothing Step = iota
	// Create says the value together with the content.
	Create
	// Claim writes the value that is there, on condition that it still is.
	Claim
	// Scale writes the granted value.
	Scale
)

func (s Step) String() string { return [...]string{"Nothing", "Create", "Claim", "Scale"}[s] }

// Next is the step to make. content says that the content is written next,
// which gives up its manager's claim.
func Next(c Copy, granted int32, autoscaled, content bool) (Step, int32) {
	switch {
	case !c.Exists:
		return Create, granted
	case content && c.Content && !c.Own:
		return Claim, c.Present
	case autoscaled, c.Present == granted:
		return Nothing, c.Present
	case !c.Content && !c.Own:
		return Claim, c.Present // it was somebody else's
	}
	return Scale, granted
}

// Autoscaler is one that names the copy as its target.
type Autoscaler struct {
	Min, Max int32
}

// InCharge says whether the replicas of a copy are an autoscaler's. It never
// looks at what an autoscaler reports: one that is broken reports zero.
// template is the template's number, present the copy's; fixed says that an
// override sets the number for this cluster.
func InCharge(scalers []Autoscaler, template, present int32, fixed bool) bool {
	if len(scalers) == 0 || fixed || template == 0 {
		return false
	}
	if present > 0 {
		return true
	}
	// At zero an autoscaler rests, unless zero is within its bounds.
	for _, s := range scalers {
		if s.Min == 0 {
			return true
		}
	}
	return false
}

// MayBeInCharge is InCharge where nobody knows yet which autoscalers there are:
// what could be set by one stays as it is.
func MayBeInCharge(template int32, fixed bool) bool {
	return !fixed && template != 0
}

// Wanted is the number to place for a workload with this autoscaler: its own,
// brought within the bounds. Zero is switched off, and stays so.
func Wanted(replicas int32, scalers []Autoscaler) int32 {
	if replicas == 0 || len(scalers) == 0 {
		return replicas
	}
	s := scalers[0]
	return min(max(replicas, s.Min), max(s.Max, 1))
}

// Bounds divides an autoscaler's bounds by weight. The sums are kept as far as
// every cluster can have one replica at least.
func Bounds(s Autoscaler, weights map[string]int32, uid types.UID) map[string]Autoscaler {
	floor := map[string]int32{}
	for cluster := range weights {
		floor[cluster] = min(s.Min, 1)
	}
	mins := divide(s.Min, floor, weights, uid)
	for cluster, n := range mins {
		floor[cluster] = max(n, 1)
	}
	out := map[string]Autoscaler{}
	for cluster, n := range divide(s.Max, floor, weights, uid) {
		out[cluster] = Autoscaler{Min: mins[cluster], Max: n}
	}
	return out
}

// divide gives every cluster its floor and the rest by weight.
func divide(total int32, floor, weights map[string]int32, uid types.UID) map[string]int32 {
	shares := make([]placement.Share, 0, len(weights))
	var least int32
	weighted := false
	for cluster, w := range weights {
		weighted = weighted || w > 0
		least += floor[cluster]
		shares = append(shares, placement.Share{Cluster: cluster, Weight: int64(w), Held: floor[cluster]})
	}
	for i := range shares {
		if !weighted {
			shares[i].Weight = 1
		}
	}
	return placement.Divide(max(total, least), shares, uid, false)
}
