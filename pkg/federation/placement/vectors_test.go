package placement

import (
	"fmt"
	"strings"
	"testing"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// fleet reads "name size held" triples; the size is a weight or a room.
func fleet(t *testing.T, doc string) (clusters []Cluster, sizes map[string]int64, previous []Target) {
	t.Helper()
	sizes = map[string]int64{}
	for part := range strings.SplitSeq(doc, ",") {
		var name string
		var size int64
		var held int32
		if n, err := fmt.Sscanf(part, "%s %d %d", &name, &size, &held); n != 3 {
			t.Fatalf("%q: %v", part, err)
		}
		clusters = append(clusters, Cluster{Name: name, Ready: true})
		if sizes[name] = size; held > 0 {
			previous = append(previous, Target{Cluster: name, Replicas: held})
		}
	}
	return clusters, sizes, previous
}

// strategyOf is a placement by weights, by room, or aggregated; the sizes are
// put where the strategy reads them.
func strategyOf(kind string, clusters []Cluster, sizes map[string]int64) policyv1alpha1.Placement {
	r := &policyv1alpha1.ReplicaSchedulingStrategy{ReplicaSchedulingType: policyv1alpha1.ReplicasDivided, ReplicaDivisionPreference: policyv1alpha1.DivisionWeighted}
	switch kind {
	case "static":
		r.WeightPreference = &policyv1alpha1.ClusterPreferences{}
		for _, c := range clusters {
			if sizes[c.Name] > 0 {
				r.WeightPreference.StaticWeightList = append(r.WeightPreference.StaticWeightList, policyv1alpha1.StaticClusterWeight{
					TargetCluster: policyv1alpha1.ClusterAffinity{ClusterNames: []string{c.Name}}, Weight: sizes[c.Name],
				})
			}
		}
		return policyv1alpha1.Placement{ReplicaScheduling: r}
	case "dynamic":
		r.WeightPreference = &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightAvailableReplicas}
	case "aggregated":
		r.ReplicaDivisionPreference = policyv1alpha1.DivisionAggregated
	}
	for i := range clusters {
		clusters[i].Available = new(sizes[clusters[i].Name])
	}
	return policyv1alpha1.Placement{ReplicaScheduling: r}
}

func showTargets(d Decision) string {
	out := make([]string, 0, len(d.Targets))
	for _, t := range d.Targets {
		out = append(out, fmt.Sprintf("%s=%d", t.Cluster, t.Replicas))
	}
	return strings.Join(out, " ")
}

// Divisions computed by hand. A seat goes to the largest w/(2s+1): a cluster of
// weight w has the quotients w, w/3, w/5, w/7 ...
func TestDivisionVectors(t *testing.T) {
	for _, c := range []struct {
		kind, fleet string
		total       int32
		fresh       bool
		want        string
		reason      string
		why         string
	}{
		{"static", "a 2 0, b 1 0", 3, false, "a=2 b=1", ReasonSuccess, "a 2, b 1, a 0.67"},
		{"static", "a 2 0, b 1 0", 4, false, "a=3 b=1", ReasonSuccess, "then a 0.4 before b 0.33"},
		{"static", "a 2 0, b 1 0", 5, false, "a=3 b=2", ReasonSuccess, "then b 0.33 before a 0.29"},
		{"static", "a 5 0, b 3 0, c 1 0", 9, false, "a=5 b=3 c=1", ReasonSuccess, "the total is the sum of the weights"},
		{"static", "a 170 0, b 110 0, c 60 0", 5, false, "a=2 b=2 c=1", ReasonSuccess, "170, 110, 60, 56.7, 36.7 before 34"},
		{"static", "a 334 0, b 333 0, c 333 0", 10, false, "a=4 b=3 c=3", ReasonSuccess, "the tenth is 334/7=47.7 before 333/7=47.6"},
		{"static", "a 100 0, b 1 0", 10, false, "a=10", ReasonSuccess, "the tenth of a is 100/19=5.3, the first of b 1"},
		{"static", "a 100 0, b 1 0", 51, false, "a=50 b=1", ReasonSuccess, "100/99 before 1 before 100/101"},
		{"static", "a 1 1, b 1 2", 3, true, "a=1 b=2", ReasonSuccess, "one each, the tie goes to b, which has two"},
		{"static", "a 1 0, b 1 0, c 0 0", 4, false, "a=2 b=2", ReasonSuccess, "no rule matches c"},
		{"static", "a 0 0, b 0 0, c 0 0", 3, false, "a=1 b=1 c=1", ReasonSuccess, "no rule matches any: equal"},
		{"static", "a 2 2, b 1 1", 4, false, "a=3 b=1", ReasonSuccess, "from 3 to 4 only a gains"},
		{"dynamic", "a 10 0, b 30 0", 4, false, "a=1 b=3", ReasonSuccess, "b 30, a 10 and b 10, b 6"},
		{"dynamic", "a 2 0, b 8 0", 10, false, "a=2 b=8", ReasonSuccess, "all that there is room for"},
		{"dynamic", "a 2 0, b 8 0", 11, false, "", ReasonUnschedulable, "there is room for 10"},
		{"dynamic", "a 0 0, b 5 0", 3, false, "b=3", ReasonSuccess, "a has no room"},
		{"dynamic", "a 0 2, b 6 2", 6, false, "a=2 b=4", ReasonSuccess, "two more, all to b"},
		{"dynamic", "a 3 4, b 9 0", 8, false, "a=5 b=3", ReasonSuccess, "four more: b 9, a 3 and b 3, b 1.8 before a 1"},
		{"dynamic", "a 1 4, b 1 0", 7, false, "a=4", ReasonUnschedulable, "three more, room for two: what is stays"},
		{"dynamic", "a 0 6, b 0 3", 6, false, "a=4 b=2", ReasonSuccess, "fewer need no room: six by 6 to 3"},
		{"dynamic", "a 9 5, b 9 1", 2, false, "a=2", ReasonSuccess, "by 5 to 1: a 5, a 1.7 before b 1"},
		{"dynamic", "a 9 3, b 9 3, c 9 3", 6, false, "a=2 b=2 c=2", ReasonSuccess, "by 3 to 3 to 3"},
		{"dynamic", "a 0 4, b 4 0", 4, true, "a=2 b=2", ReasonSuccess, "afresh what is there counts as room: 4 to 4"},
		{"aggregated", "a 3 0, b 5 0, c 4 0", 5, false, "b=5", ReasonSuccess, "b alone suffices"},
		{"aggregated", "a 3 0, b 5 0, c 4 0", 8, false, "b=4 c=4", ReasonSuccess, "b and c: b 5, c 4, 1.7, 1.3, 1, 0.8, 0.71, 0.57"},
		{"aggregated", "a 1 1, b 9 0", 2, false, "a=2", ReasonSuccess, "a is in use and has room for one more"},
		{"aggregated", "a 1 1, b 9 0", 5, false, "a=1 b=4", ReasonSuccess, "four more by 1 to 9: b 9, 3, 1.8, 1.29 before a 1"},
		{"aggregated", "a 0 5, b 0 3, c 0 1", 5, false, "a=5", ReasonSuccess, "what a has suffices"},
		{"aggregated", "a 0 5, b 0 3, c 0 1", 7, false, "a=4 b=3", ReasonSuccess, "a and b by 5 to 3: 5, 3, 1.67, 1 and 1, 0.71, b 0.6 before a 0.56"},
		{"aggregated", "a 1 0, b 1 0", 3, false, "", ReasonUnschedulable, "there is room for two"},
		{"aggregated", "a 5 2, b 9 0", 4, true, "a=4", ReasonSuccess, "afresh, too, the one in use comes first: 5 and 2"},
	} {
		clusters, sizes, previous := fleet(t, c.fleet)
		d := Place(Input{
			UID: "uid", Placement: strategyOf(c.kind, clusters, sizes), Divisible: true,
			Replicas: c.total, Clusters: clusters, Previous: previous, Fresh: c.fresh,
		})
		if got := showTargets(d); got != c.want || d.Reason != c.reason {
			t.Errorf("%s of %d over %q: %q %s %s, want %q (%s)", c.kind, c.total, c.fleet, got, d.Reason, d.Message, c.want, c.why)
		}
	}
}
