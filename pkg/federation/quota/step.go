package quota

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// State is what has been granted and said, by cluster. It has to be on record
// before anybody is told.
type State map[string]Part

// Part is one cluster's.
type Part struct {
	// Granted bounds what the cluster may allow at this moment.
	Granted corev1.ResourceList `json:"granted,omitempty"`
	// Told is what it is to allow; nil where it is to allow nothing, because the
	// quota does not go there any more.
	Told corev1.ResourceList `json:"told,omitempty"`
	// Step counts what the cluster was told, so that what is seen of it is not
	// taken for the effect of a later word.
	Step int64 `json:"step"`
}

// Granted are the shares on record.
func (s State) Granted() Shares {
	out := Shares{}
	for cluster, p := range s {
		out[cluster] = p.Granted
	}
	return out
}

// Seen is what a member was last seen to allow.
type Seen struct {
	Hard corev1.ResourceList
	// Step that the copy carries.
	Step int64
	// Gone: there is surely no copy, and none is being written.
	Gone bool
}

// Next goes as far towards the target as is safe. What all clusters together are
// granted never comes to more than the limit, or than it was: what is to shrink
// counts with the larger of both until the member was seen with the smaller, and
// only what that frees is granted to others.
func (s State) Next(hard corev1.ResourceList, target Shares, seen map[string]Seen) State {
	out := State{}
	for cluster := range target {
		out[cluster] = Part{Granted: corev1.ResourceList{}, Told: corev1.ResourceList{}, Step: s[cluster].Step}
	}
	for name, q := range hard {
		if Divided(name) {
			s.grant(out, name, limit(name, q), target, seen)
		}
		for cluster, t := range target {
			goal := t[name]
			if Divided(name) {
				granted := out[cluster].Granted[name]
				goal = *quantity(name, min(units(name, granted), units(name, goal)), q.Format)
			}
			out[cluster].Told[name] = goal
		}
	}
	for cluster, p := range out {
		if !equality.Semantic.DeepEqual(p.Told, s[cluster].Told) {
			p.Step++
			out[cluster] = p
		}
	}
	return out
}

// grant fills in what the clusters are granted of one resource.
func (s State) grant(out State, name corev1.ResourceName, room int64, target Shares, seen map[string]Seen) {
	has := map[string]int64{}
	for cluster := range s {
		has[cluster] = s.holds(cluster, name, target, seen[cluster])
	}
	for cluster := range target {
		has[cluster] += 0
	}
	for _, n := range has {
		room -= n
	}
	for _, cluster := range slices.Sorted(maps.Keys(has)) {
		if more := min(units(name, target[cluster][name])-has[cluster], room); more > 0 {
			has[cluster] += more
			room -= more
		}
		if _, ok := out[cluster]; !ok {
			if has[cluster] == 0 {
				continue
			}
			out[cluster] = Part{Granted: corev1.ResourceList{}, Step: s[cluster].Step}
		}
		out[cluster].Granted[name] = *quantity(name, has[cluster], s.format(cluster, name, target))
	}
}

func (s State) format(cluster string, name corev1.ResourceName, target Shares) (f quantityFormat) {
	if q, ok := target[cluster][name]; ok {
		return q.Format
	}
	q := s[cluster].Granted[name]
	return q.Format
}

// holds is what a cluster may allow at this moment.
func (s State) holds(cluster string, name corev1.ResourceName, target Shares, seen Seen) int64 {
	part := s[cluster]
	has, goal := units(name, part.Granted[name]), units(name, target[cluster][name])
	switch told, said := part.Told[name]; {
	case goal >= has:
		return has
	case target[cluster] == nil && seen.Gone:
		return 0
	case said && seen.Step == part.Step && !seen.Gone:
		if q, ok := seen.Hard[name]; ok {
			return min(has, max(goal, units(name, told), units(name, q)))
		}
	}
	return has
}
