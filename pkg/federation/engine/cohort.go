package engine

import (
	"maps"
	"slices"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// byCohort indexes bindings by the affinity groups of their templates.
const byCohort = "cohort"

func inGroup(namespace, group string) string   { return "together/" + namespace + "/" + group }
func apartFrom(namespace, group string) string { return "apart/" + namespace + "/" + group }

func cohortsOf(x *binding) []string {
	g := x.Spec.WorkloadAffinityGroups
	if g == nil {
		return nil
	}
	var out []string
	if g.AffinityGroup != "" {
		out = append(out, inGroup(x.Namespace, g.AffinityGroup))
	}
	if g.AntiAffinityGroup != "" {
		out = append(out, apartFrom(x.Namespace, g.AntiAffinityGroup))
	}
	return out
}

// clustersOf are the clusters of the other templates of a group, what has just
// been written included; nil when there are none.
func (b *bindingCache) clustersOf(self marks.Key, cohort string) []string {
	members := map[string]marks.Key{}
	for _, i := range b.informers() {
		objs, err := i.GetIndexer().ByIndex(byCohort, cohort)
		if err != nil {
			continue
		}
		for _, obj := range objs {
			if x, ok := obj.(*binding); ok {
				members[identity(keyOf(x))] = b.engine.canonical(keyOf(x))
			}
		}
	}
	b.mu.Lock()
	for key, x := range b.written {
		if slices.Contains(cohortsOf(x), cohort) {
			members[identity(key)] = key
		}
	}
	b.mu.Unlock()
	delete(members, identity(self))
	clusters := map[string]struct{}{}
	for _, key := range members {
		x := b.get(key)
		if x == nil || !slices.Contains(cohortsOf(x), cohort) {
			continue
		}
		for _, c := range x.Spec.Clusters {
			clusters[c.Name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(clusters))
}
