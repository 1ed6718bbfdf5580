package placement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

func rules(t *testing.T, doc string) (p policyv1alpha1.Placement) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(doc), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func ready(names ...string) (out []Cluster) {
	for _, n := range names {
		out = append(out, Cluster{Name: n, Ready: true, Labels: map[string]string{"name": n}})
	}
	return out
}

func broken(c []Cluster, name string) []Cluster {
	for i := range c {
		if c[i].Name == name {
			c[i].Ready = false
		}
	}
	return c
}

const divide11 = `{replicaScheduling: {replicaSchedulingType: Divided}}`

func TestPlace(t *testing.T) {
	tainted := ready("m1", "m2")
	tainted[1].Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	regions := ready("m1", "m2")
	regions[0].Region, regions[1].Region = "eu", "us"
	roomy := ready("m1", "m2")
	roomy[0].Available, roomy[1].Available = new(int64(10)), new(int64(30))
	halfKnown := ready("m1", "m2")
	halfKnown[0].Available = new(int64(100))
	for name, c := range map[string]struct {
		placement string
		replicas  int32
		clusters  []Cluster
		previous  []Target
		fresh     bool
		want      string
		reason    string
	}{
		"everywhere by default":               {`{}`, 3, ready("m1", "m2"), nil, false, "m1=3 m2=3", ReasonSuccess},
		"by name":                             {`{clusterAffinity: {clusterNames: [m2]}}`, 3, ready("m1", "m2"), nil, false, "m2=3", ReasonSuccess},
		"but not":                             {`{clusterAffinity: {exclude: [m2]}}`, 3, ready("m1", "m2"), nil, false, "m1=3", ReasonSuccess},
		"by label":                            {`{clusterAffinity: {labelSelector: {matchLabels: {name: m1}}}}`, 3, ready("m1", "m2"), nil, false, "m1=3", ReasonSuccess},
		"by region":                           {`{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [eu]}]}}}`, 3, regions, nil, false, "m2=3", ReasonSuccess},
		"all parts of an affinity must match": {`{clusterAffinity: {clusterNames: [m2], labelSelector: {matchLabels: {name: m1}}}}`, 3, ready("m1", "m2"), nil, false, "", ReasonNoCluster},
		"taints keep new targets away":        {`{}`, 1, tainted, nil, false, "m1=1", ReasonSuccess},
		"taints do not move what is there":    {`{}`, 1, tainted, []Target{{"m2", 1}}, false, "m1=1 m2=1", ReasonSuccess},
		"taints can be tolerated":             {`{clusterTolerations: [{key: k, operator: Exists}]}`, 1, tainted, nil, false, "m1=1 m2=1", ReasonSuccess},
		"another value is no toleration":      {`{clusterTolerations: [{key: k, value: w}]}`, 1, tainted, nil, false, "m1=1", ReasonSuccess},
		"divided equally":                     {divide11, 6, ready("m1", "m2", "m3"), nil, false, "m1=2 m2=2 m3=2", ReasonSuccess},
		"weights":                             {`{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m1]}, weight: 1}, {targetCluster: {clusterNames: [m2]}, weight: 2}]}}}`, 6, ready("m1", "m2", "m3"), nil, false, "m1=2 m2=4", ReasonSuccess},
		"the larger of two weights":           {`{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1}, {targetCluster: {clusterNames: [m2]}, weight: 2}]}}}`, 6, ready("m1", "m2"), nil, false, "m1=2 m2=4", ReasonSuccess},
		"no weight matches: equal":            {`{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [x]}, weight: 9}]}}}`, 4, ready("m1", "m2"), nil, false, "m1=2 m2=2", ReasonSuccess},
		"by capacity":                         {`{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}`, 4, roomy, nil, false, "m1=1 m2=3", ReasonSuccess},
		"capacity half known: equal":          {`{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}`, 4, halfKnown, nil, false, "m1=2 m2=2", ReasonSuccess},
		"one cluster, the one in use":         {`{spreadConstraints: [{spreadByField: cluster, minGroups: 1, maxGroups: 1}]}`, 2, ready("m1", "m2", "m3"), []Target{{"m2", 2}}, false, "m2=2", ReasonSuccess},
		"one cluster, in use and not ready":   {`{spreadConstraints: [{spreadByField: cluster, minGroups: 1, maxGroups: 1}]}`, 2, broken(ready("m1", "m2"), "m2"), []Target{{"m2", 2}}, false, "m2=2", ReasonSuccess},
		"too few clusters":                    {`{spreadConstraints: [{spreadByField: cluster, minGroups: 3}]}`, 2, ready("m1", "m2"), []Target{{"m1", 2}}, false, "m1=2", ReasonTooFew},
		"not ready gets nothing new":          {divide11, 4, broken(ready("m1", "m2"), "m2"), nil, false, "m1=4", ReasonSuccess},
		"not ready keeps what it has":         {divide11, 10, broken(ready("m1", "m2"), "m1"), []Target{{"m1", 5}}, false, "m1=5 m2=5", ReasonSuccess},
		"not ready has more than all":         {divide11, 3, broken(ready("m1", "m2"), "m1"), []Target{{"m1", 5}, {"m2", 1}}, false, "m1=5", ReasonPostponed},
		"nothing is ready":                    {divide11, 10, broken(ready("m1"), "m1"), []Target{{"m1", 5}}, false, "m1=5", ReasonPostponed},
		"a mistake takes nothing away":        {`{clusterAffinity: {clusterNames: [typo]}}`, 3, ready("m1"), []Target{{"m1", 3}}, true, "m1=3", ReasonNoCluster},
		"scaled to zero stays":                {divide11, 0, ready("m1", "m2", "m3"), []Target{{"m1", 2}, {"m2", 1}}, false, "m1=0 m2=0", ReasonSuccess},
		"zero from the start":                 {divide11, 0, ready("m1", "m2"), nil, false, "m1=0 m2=0", ReasonSuccess},
		"a cluster that left":                 {divide11, 4, ready("m1"), []Target{{"m1", 2}, {"m2", 2}}, false, "m1=4", ReasonSuccess},
	} {
		d := Place(Input{UID: "uid", Placement: rules(t, c.placement), Divisible: true, Replicas: c.replicas, Clusters: c.clusters, Previous: c.previous, Fresh: c.fresh})
		var got []string
		for _, target := range d.Targets {
			got = append(got, fmt.Sprintf("%s=%d", target.Cluster, target.Replicas))
		}
		if c.want != "" && strings.Join(got, " ") != c.want || d.Reason != c.reason {
			t.Errorf("%s: %v %s (%s), want %s %s", name, got, d.Reason, d.Message, c.want, c.reason)
		}
	}
}

// What a cluster cannot make goes first, and no more than has to go.
func TestUnmadeGoesFirst(t *testing.T) {
	const weighted = `{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m1]}, weight: 9}, {targetCluster: {clusterNames: [m2, m3]}, weight: 1}]}}}`
	const byCapacity = `{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}`
	for name, c := range map[string]struct {
		placement string
		replicas  int32
		unmade    []int32
		previous  []Target
		fresh     bool
		want      string
	}{
		"one of three":              {divide11, 2, []int32{0, 1, 0}, []Target{{"m1", 1}, {"m2", 1}, {"m3", 1}}, false, "m1=1 m3=1"},
		"whatever the weight":       {weighted, 2, []int32{1, 0, 0}, []Target{{"m1", 1}, {"m2", 1}, {"m3", 1}}, false, "m2=1 m3=1"},
		"whatever the room":         {byCapacity, 2, []int32{1, 0, 0}, []Target{{"m1", 1}, {"m2", 1}, {"m3", 1}}, false, "m2=1 m3=1"},
		"no more than goes":         {divide11, 5, []int32{3, 0, 0}, []Target{{"m1", 3}, {"m2", 3}}, false, "m1=2 m2=3"},
		"then as ever":              {divide11, 4, []int32{1, 0, 0}, []Target{{"m1", 3}, {"m2", 3}}, false, "m1=2 m2=2"},
		"more than it was given":    {divide11, 2, []int32{9, 0, 0}, []Target{{"m1", 2}, {"m2", 2}}, false, "m2=2"},
		"more replicas, none taken": {divide11, 4, []int32{1, 0, 0}, []Target{{"m1", 1}, {"m2", 1}}, false, "m1=2 m2=2"},
		"a new decision looks anew": {divide11, 2, []int32{1, 0, 0}, []Target{{"m1", 2}, {"m2", 1}}, true, "m1=1 m2=1"},
	} {
		clusters := ready("m1", "m2", "m3")
		if len(c.previous) == 2 {
			clusters = clusters[:2]
		}
		for i := range clusters {
			clusters[i].Unmade = c.unmade[i]
			clusters[i].Available = new(int64(100 - 10*i))
		}
		d := Place(Input{UID: "uid", Placement: rules(t, c.placement), Divisible: true, Replicas: c.replicas, Clusters: clusters, Previous: c.previous, Fresh: c.fresh})
		var got []string
		for _, target := range d.Targets {
			got = append(got, fmt.Sprintf("%s=%d", target.Cluster, target.Replicas))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func TestExplanation(t *testing.T) {
	clusters := broken(ready("m1", "m2", "m3"), "m1")
	clusters[1].Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	d := Place(Input{Placement: rules(t, `{clusterAffinity: {exclude: [m3]}}`), Clusters: clusters})
	if want := "0/3 clusters are available: 1 not ready, 1 not selected by clusterAffinity, 1 tainted k:NoExecute"; d.Message != want {
		t.Errorf("message %q", d.Message)
	}
	if d = Place(Input{}); d.Message != "0/0 clusters are available" {
		t.Errorf("message %q", d.Message)
	}
}

func TestDue(t *testing.T) {
	base := func(change func(*Input)) bool {
		in := Input{Placement: rules(t, divide11), Divisible: true, Replicas: 4, Clusters: ready("m1", "m2", "m3"), Previous: []Target{{"m1", 3}, {"m2", 1}}}
		change(&in)
		return Due(in)
	}
	for name, c := range map[string]struct {
		change func(*Input)
		want   bool
	}{
		"nothing changed, though unequal": {func(*Input) {}, false},
		"a cluster broke":                 {func(in *Input) { broken(in.Clusters, "m1") }, false},
		"replicas changed":                {func(in *Input) { in.Replicas = 5 }, true},
		"asked for":                       {func(in *Input) { in.Fresh = true }, true},
		"a target left":                   {func(in *Input) { in.Clusters = ready("m1", "m3") }, true},
		"first time":                      {func(in *Input) { in.Previous = nil }, true},
		"not divided":                     {func(in *Input) { in.Divisible = false }, true},
	} {
		if got := base(c.change); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Steps of a fleet under a policy: what is not ready is never touched, the sum
// is right whenever that allows it, and placing again moves nothing.
func TestPlaceIsStable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := Input{UID: "u", Divisible: true, Placement: rules(t, divide11), Clusters: ready("m1", "m2", "m3", "m4")}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			in.Replicas = rapid.Int32Range(0, 20).Draw(rt, "replicas")
			for i := range in.Clusters {
				in.Clusters[i].Ready = rapid.IntRange(0, 3).Draw(rt, "ready") > 0
			}
			d := Place(in)
			total := int32(0)
			had := map[string]int32{}
			for _, p := range in.Previous {
				had[p.Cluster] = p.Replicas
			}
			for _, target := range d.Targets {
				total += target.Replicas
				for _, c := range in.Clusters {
					if c.Name == target.Cluster && !c.Ready && had[c.Name] != target.Replicas {
						rt.Fatalf("%s is not ready and moved from %d to %d", c.Name, had[c.Name], target.Replicas)
					}
				}
			}
			if d.Reason == ReasonSuccess && total != in.Replicas {
				rt.Fatalf("%d of %d placed", total, in.Replicas)
			}
			in.Previous = d.Targets
			if diff := cmp.Diff(d.Targets, Place(in).Targets); d.OK() && diff != "" {
				rt.Fatal(diff)
			}
		}
	})
}

func TestRoom(t *testing.T) {
	list := func(cpu, memory, pods string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, v := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, corev1.ResourcePods: pods} {
			if v != "" {
				out[name] = resource.MustParse(v)
			}
		}
		return out
	}
	request := Request(&corev1.PodSpec{
		Containers:     []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("100m", "1Gi", "")}}, {Resources: corev1.ResourceRequirements{Requests: list("100m", "", "")}}},
		InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("500m", "", "")}}},
	})
	for name, c := range map[string]struct {
		free corev1.ResourceList
		want any
	}{
		"not known":          {nil, nil},
		"cpu is short":       {list("1", "100Gi", "100"), int64(2)},
		"memory is short":    {list("100", "3Gi", "100"), int64(3)},
		"pods are short":     {list("100", "100Gi", "1"), int64(1)},
		"pods not counted":   {list("100", "5Gi", ""), int64(5)},
		"no memory reported": {list("100", "", "10"), int64(0)},
		"overcommitted":      {list("-1", "5Gi", "10"), int64(0)},
	} {
		var got any
		if r := Room(c.free, request); r != nil {
			got = *r
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
