package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Anchor keeps a workload with volumes where its volumes are: clusters may be
// given more, or may lose some, but never one for the other. What was decided
// otherwise is returned as it may be, with the reason. previous holds only
// clusters that are still there: what a cluster that has left held is lost
// anyway.
func Anchor(previous []Target, decided Decision, divided bool) Decision {
	held, next := byCluster(previous), byCluster(decided.Targets)
	var lost, gained []string
	for _, c := range sortedClusters(held, next) {
		h, had := held[c]
		n, has := next[c]
		switch {
		case had && !has, divided && n < h:
			lost = append(lost, c)
		case !had && has, divided && n > h:
			gained = append(gained, c)
		}
	}
	if len(lost) == 0 || len(gained) == 0 {
		return decided
	}
	out := decided
	out.Reason = ReasonPostponed
	out.Message = fmt.Sprintf("its volumes keep it in %s: it would move to %s; allow that with the annotation %s=true",
		strings.Join(lost, ", "), strings.Join(gained, ", "), MoveVolumesAnnotation)
	if divided {
		out.Targets = hold(held, next, lost, gained)
	} else {
		out.Targets = keepWhole(held, next, decided.Targets)
	}
	return finish(out)
}

// MoveVolumesAnnotation lets a template, with the value "true", leave its volumes
// behind.
const MoveVolumesAnnotation = "isthmus.dev/move-volumes"

func byCluster(targets []Target) map[string]int32 {
	out := make(map[string]int32, len(targets))
	for _, t := range targets {
		out[t.Cluster] = t.Replicas
	}
	return out
}

func sortedClusters(maps ...map[string]int32) []string {
	var out []string
	for _, m := range maps {
		for c := range m {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hold divides so that the sum is what was decided: either nobody loses, or
// nobody gains.
func hold(held, next map[string]int32, lost, gained []string) []Target {
	out := map[string]int32{}
	var diff int64
	for c, n := range held {
		out[c] = n
		diff -= int64(n)
	}
	for _, n := range next {
		diff += int64(n)
	}
	for ; diff > 0; diff-- {
		c := slices.MaxFunc(gained, func(a, b string) int {
			return cmp.Or(cmp.Compare(next[a]-out[a], next[b]-out[b]), cmp.Compare(b, a))
		})
		out[c]++
	}
	for ; diff < 0; diff++ {
		c := slices.MaxFunc(lost, func(a, b string) int {
			return cmp.Or(cmp.Compare(out[a]-next[a], out[b]-next[b]), cmp.Compare(b, a))
		})
		out[c]--
	}
	var targets []Target
	for c, n := range out {
		if _, was := held[c]; was || n > 0 {
			targets = append(targets, Target{Cluster: c, Replicas: n})
		}
	}
	return targets
}

// keepWhole: the clusters stay, with the replicas that each was to have.
func keepWhole(held, next map[string]int32, decided []Target) []Target {
	targets := make([]Target, 0, len(held))
	for c, n := range held {
		if m, ok := next[c]; ok {
			n = m
		} else if len(decided) > 0 {
			n = decided[0].Replicas
		}
		targets = append(targets, Target{Cluster: c, Replicas: n})
	}
	return targets
}
