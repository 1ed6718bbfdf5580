package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// rooms gives clusters their room, by order.
func rooms(clusters []Cluster, room ...int64) []Cluster {
	for i, n := range room {
		clusters[i].Available = new(n)
	}
	return clusters
}

const byDynamicWeight = `replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}`

func TestAffinityGroups(t *testing.T) {
	const groups = `clusterAffinities: [{affinityName: near, clusterNames: [m1]}, {affinityName: far, clusterNames: [m2]}, {affinityName: last, clusterNames: [m3]}]`
	for name, c := range map[string]struct {
		placement, group string
		clusters         []Cluster
		previous         []Target
		fresh, restart   bool
		replicas         int32
		want, used       string
		reason           string
	}{
		"the first that fits":              {groups, "", ready("m1", "m2", "m3"), nil, false, false, 2, "m1=2", "near", ReasonSuccess},
		"the next where it does not":       {groups, "", broken(ready("m1", "m2", "m3"), "m1"), nil, false, false, 2, "m2=2", "far", ReasonSuccess},
		"none":                             {groups, "", ready("m4"), nil, false, false, 2, "", "", ReasonNoCluster},
		"never back by itself":             {groups, "far", ready("m1", "m2", "m3"), []Target{{"m2", 2}}, false, false, 2, "m2=2", "far", ReasonSuccess},
		"not back by a new placement":      {groups, "far", ready("m1", "m2", "m3"), []Target{{"m2", 2}}, true, false, 2, "m2=2", "far", ReasonSuccess},
		"back when asked for":              {groups, "far", ready("m1", "m2", "m3"), []Target{{"m2", 2}}, true, true, 2, "m1=2", "near", ReasonSuccess},
		"a dead cluster moves nothing":     {groups, "near", broken(ready("m1", "m2", "m3"), "m1"), []Target{{"m1", 2}}, false, false, 2, "m1=2", "near", ReasonSuccess},
		"from a group that is gone":        {groups, "former", ready("m2", "m3"), []Target{{"m3", 2}}, false, false, 2, "m3=2", "last", ReasonSuccess},
		"forward, when its cluster is out": {groups, "far", ready("m1", "m3"), []Target{{"m2", 2}}, false, false, 2, "m3=2", "last", ReasonSuccess},
		"no room in the first": {
			groups + "\n" + byDynamicWeight, "", rooms(ready("m1", "m2", "m3"), 1, 5, 5), nil, false, false, 3, "m2=3", "far", ReasonSuccess,
		},
		"no room in any": {
			groups + "\n" + byDynamicWeight, "near", rooms(ready("m1", "m2", "m3"), 1, 1, 1), []Target{{"m1", 1}}, false, false, 9, "m1=1", "near", ReasonUnschedulable,
		},
	} {
		d := Place(Input{
			UID: "u", Placement: rules(t, c.placement), Divisible: true, Replicas: c.replicas, Clusters: c.clusters,
			Previous: c.previous, Group: c.group, Fresh: c.fresh, Restart: c.restart,
		})
		if got := showTargets(d); got != c.want || d.Group != c.used || d.Reason != c.reason {
			t.Errorf("%s: %q in %q, %s %s", name, got, d.Group, d.Reason, d.Message)
		}
	}
}

func TestOverflow(t *testing.T) {
	const tiers = byDynamicWeight + "\n" + `clusterAffinities: [{affinityName: own, clusterNames: [m1], overflowAffinities: [{affinityName: rented, clusterNames: [m1, m2]}, {affinityName: dear, clusterNames: [m3]}]}]`
	for name, c := range map[string]struct {
		room     []int64
		previous []Target
		replicas int32
		fresh    bool
		want     string
	}{
		"room in the first":       {[]int64{5, 5, 5}, nil, 4, false, "m1=4"},
		"over into the second":    {[]int64{3, 5, 5}, nil, 5, false, "m1=3 m2=2"},
		"and into the third":      {[]int64{3, 5, 5}, nil, 10, false, "m1=3 m2=5 m3=2"},
		"more":                    {[]int64{0, 3, 5}, []Target{{"m1", 3}, {"m2", 2}}, 9, false, "m1=3 m2=5 m3=1"},
		"fewer, from the last":    {[]int64{0, 0, 0}, []Target{{"m1", 3}, {"m2", 5}, {"m3", 1}}, 5, false, "m1=3 m2=2"},
		"more where there is now": {[]int64{5, 5, 5}, []Target{{"m1", 3}, {"m2", 2}}, 6, false, "m1=4 m2=2"},
		"back when asked for":     {[]int64{5, 5, 5}, []Target{{"m1", 3}, {"m2", 2}}, 5, true, "m1=5"},
	} {
		d := Place(Input{
			UID: "u", Placement: rules(t, tiers), Divisible: true, Replicas: c.replicas, Clusters: rooms(ready("m1", "m2", "m3"), c.room...),
			Previous: c.previous, Group: "own", Fresh: c.fresh,
		})
		if got := showTargets(d); got != c.want || !d.OK() {
			t.Errorf("%s: %q, want %q: %s", name, got, c.want, d.Message)
		}
	}
}

// located are clusters "name region zone+zone provider".
func located(doc string) (out []Cluster) {
	for part := range strings.SplitSeq(doc, ",") {
		f := strings.Fields(part)
		c := Cluster{Name: f[0], Ready: true, Region: f[1], Provider: f[3], Labels: map[string]string{"rack": f[3]}}
		if c.Zones = strings.Split(f[2], "+"); f[2] == "-" {
			c.Zones = nil
		}
		if c.Region == "-" {
			c.Region = ""
		}
		out = append(out, c)
	}
	return out
}

func TestSpreadConstraints(t *testing.T) {
	const world = "m1 eu a x, m2 eu b x, m3 us c y, m4 us d y, m5 ap e+f y"
	for name, c := range map[string]struct {
		constraints, clusters string
		previous              []Target
		regions, count        int
		holds                 string
		reason                string
	}{
		"two regions at least":            {`[{spreadByField: region, minGroups: 2}]`, world, nil, 3, 5, "", ReasonSuccess},
		"one region at most":              {`[{spreadByField: region, maxGroups: 1}]`, world, nil, 1, 0, "", ReasonSuccess},
		"one region, the one in use":      {`[{spreadByField: region, maxGroups: 1}]`, world, []Target{{"m4", 1}}, 1, 2, "m3 m4", ReasonSuccess},
		"three regions, three clusters":   {`[{spreadByField: region, minGroups: 3}, {spreadByField: cluster, maxGroups: 3}]`, world, nil, 3, 3, "m5", ReasonSuccess},
		"two clusters, two regions":       {`[{spreadByField: cluster, minGroups: 2, maxGroups: 2}, {spreadByField: region, minGroups: 2, maxGroups: 2}]`, world, []Target{{"m1", 1}}, 2, 2, "m1", ReasonSuccess},
		"too many regions":                {`[{spreadByField: region, minGroups: 4}]`, world, nil, 0, 0, "", ReasonTooFew},
		"together impossible":             {`[{spreadByField: region, minGroups: 3}, {spreadByField: cluster, maxGroups: 2}]`, world, nil, 0, 0, "", ReasonTooFew},
		"six zones of five clusters":      {`[{spreadByField: zone, minGroups: 6}]`, world, nil, 3, 5, "m5", ReasonSuccess},
		"one zone at most":                {`[{spreadByField: zone, maxGroups: 1}]`, world, nil, 1, 1, "", ReasonSuccess},
		"one provider":                    {`[{spreadByField: provider, maxGroups: 1}]`, world, []Target{{"m2", 1}}, 1, 2, "m1 m2", ReasonSuccess},
		"by label":                        {`[{spreadByLabel: rack, maxGroups: 1}]`, world, []Target{{"m5", 1}}, 2, 3, "m3 m4 m5", ReasonSuccess},
		"without a region is left out":    {`[{spreadByField: region, minGroups: 1}]`, "m1 - a x, m2 eu b x", nil, 1, 1, "m2", ReasonSuccess},
		"but not where it runs":           {`[{spreadByField: region, minGroups: 1}]`, "m1 - a x, m2 eu b x", []Target{{"m1", 1}}, 2, 2, "m1 m2", ReasonSuccess},
		"needs another than the greedy":   {`[{spreadByField: cluster, maxGroups: 2}, {spreadByField: provider, minGroups: 2}, {spreadByField: region, minGroups: 2, maxGroups: 2}]`, "m1 eu a x, m2 eu b y, m3 us c x", nil, 2, 2, "", ReasonSuccess},
		"a region with no other provider": {`[{spreadByField: region, maxGroups: 1}, {spreadByField: provider, minGroups: 2}]`, "m1 eu a x, m3 us c x, m4 us d y", []Target{{"m1", 1}}, 1, 2, "m3 m4", ReasonSuccess},
	} {
		clusters := located(c.clusters)
		d := Place(Input{UID: "u", Placement: rules(t, "spreadConstraints: "+c.constraints), Clusters: clusters, Previous: c.previous})
		if d.Reason != c.reason {
			t.Errorf("%s: %s %s", name, d.Reason, d.Message)
			continue
		}
		if !d.OK() {
			continue
		}
		regions, has := map[string]bool{}, map[string]bool{}
		for _, x := range d.Targets {
			has[x.Cluster] = true
			for _, k := range clusters {
				if k.Name == x.Cluster {
					regions[k.Region] = true
				}
			}
		}
		if len(regions) != c.regions || c.count > 0 && len(has) != c.count {
			t.Errorf("%s: %v", name, d.Targets)
		}
		for want := range strings.FieldsSeq(c.holds) {
			if !has[want] {
				t.Errorf("%s: %v without %s", name, d.Targets, want)
			}
		}
	}
}

// Whatever the constraints: a choice satisfies them, none is only said where no
// set of clusters does, and choosing again from it changes nothing.
func TestSpreadFindsWhatThereIs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := Input{UID: "u", Clusters: nil}
		n := rapid.IntRange(1, 6).Draw(rt, "clusters")
		for i := range n {
			in.Clusters = append(in.Clusters, Cluster{
				Name: string(rune('a' + i)), Ready: true,
				Region:   rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(rt, "region"),
				Provider: rapid.SampledFrom([]string{"p1", "p2"}).Draw(rt, "provider"),
			})
		}
		for _, field := range []string{"cluster", "region", "provider"} {
			if rapid.Bool().Draw(rt, "by "+field) {
				least := rapid.IntRange(0, 3).Draw(rt, "min")
				most := rapid.IntRange(0, 3).Draw(rt, "max")
				if most > 0 {
					most = max(most, least)
				}
				in.Placement.SpreadConstraints = append(in.Placement.SpreadConstraints, policyv1alpha1.SpreadConstraint{SpreadByField: field, MinGroups: least, MaxGroups: most})
			}
		}
		satisfies := func(set map[string]bool) bool {
			for _, s := range in.Placement.SpreadConstraints {
				groups := map[string]bool{}
				for _, c := range in.Clusters {
					if set[c.Name] {
						groups[map[string]string{"cluster": c.Name, "region": c.Region, "provider": c.Provider}[s.SpreadByField]] = true
					}
				}
				if len(groups) < s.MinGroups || s.MaxGroups > 0 && len(groups) > s.MaxGroups {
					return false
				}
			}
			return len(set) > 0
		}
		possible := false
		for mask := 1; mask < 1<<n && !possible; mask++ {
			set := map[string]bool{}
			for i, c := range in.Clusters {
				if mask&(1<<i) != 0 {
					set[c.Name] = true
				}
			}
			possible = satisfies(set)
		}
		d := Place(in)
		if d.OK() != possible {
			rt.Fatalf("%v, but possible is %v: %s", d.Targets, possible, d.Message)
		}
		if !possible {
			return
		}
		set := map[string]bool{}
		for _, x := range d.Targets {
			set[x.Cluster] = true
		}
		if !satisfies(set) {
			rt.Fatalf("%v does not satisfy %+v", set, in.Placement.SpreadConstraints)
		}
		in.Previous = d.Targets
		if again := Place(in); showTargets(again) != showTargets(d) {
			rt.Fatalf("%v became %v", d.Targets, again.Targets)
		}
	})
}

func TestWhoMayBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Cluster, *Input)
		previous []Target
		want     string
		message  string
	}{
		"failed":                          {func(c *Cluster, _ *Input) { c.Failed = "out of reach" }, nil, "m2=1", ""},
		"failed, and there":               {func(c *Cluster, _ *Input) { c.Failed = "out of reach" }, []Target{{"m1", 1}}, "m2=1", ""},
		"failed, and nowhere else":        {func(c *Cluster, in *Input) { c.Failed = "out of reach"; in.Clusters[1].Ready = false }, []Target{{"m1", 1}}, "m1=1", "0/2 clusters are available: 1 not ready, 1 out of reach"},
		"without the definition":          {func(c *Cluster, _ *Input) { c.Lacks = "CRD foos.example.com" }, nil, "m2=1", ""},
		"without it, and there":           {func(c *Cluster, _ *Input) { c.Lacks = "CRD foos.example.com" }, []Target{{"m1", 1}}, "m1=1 m2=1", ""},
		"PreferNoExecute":                 {func(c *Cluster, _ *Input) { c.Taints = []corev1.Taint{{Key: "k", Effect: "PreferNoExecute"}} }, nil, "m2=1", ""},
		"with its group":                  {func(_ *Cluster, in *Input) { in.Together = []string{"m1"} }, nil, "m1=1", ""},
		"its group is nowhere":            {func(_ *Cluster, in *Input) { in.Together = []string{} }, nil, "", "0/2 clusters are available: 2 without the rest of its affinity group"},
		"apart from its group":            {func(_ *Cluster, in *Input) { in.Apart = []string{"m1"} }, nil, "m2=1", ""},
		"apart, but there already":        {func(_ *Cluster, in *Input) { in.Apart = []string{"m1"} }, []Target{{"m1", 1}}, "m1=1 m2=1", ""},
		"not ready and not to be trusted": {func(c *Cluster, _ *Input) { c.Ready, c.Failed = false, "out of reach" }, []Target{{"m1", 1}}, "m2=1", ""},
	} {
		in := Input{UID: "u", Divisible: true, Replicas: 1, Clusters: ready("m1", "m2"), Previous: c.previous}
		c.change(&in.Clusters[0], &in)
		d := Place(in)
		if got := showTargets(d); got != c.want || d.Message != c.message {
			t.Errorf("%s: %q %q", name, got, d.Message)
		}
	}
}
