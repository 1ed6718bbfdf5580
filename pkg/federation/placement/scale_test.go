package placement

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

const many = 10_000

// manyPolicies are a policy for each of the templates, by name, and in each of a
// hundred namespaces ten by label and one by kind.
func manyPolicies(tb testing.TB) (*Index, []*Policy) {
	tb.Helper()
	var policies []*Policy
	for i := range many {
		p := &Policy{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("p-%d", i), UID: types.UID(fmt.Sprint(i))}
		s := policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("web-%d", i)}
		switch {
		case i < 100:
			s.Name = ""
		case i < 1100:
			s.Name, s.LabelSelector = "", selectorFor(fmt.Sprint(i))
		}
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{s}
		p.Spec.Placement = policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicasDivided,
			WeightPreference:      &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightAvailableReplicas},
		}}
		policies = append(policies, p)
	}
	ix, errs := NewIndex(policies)
	if len(errs) > 0 {
		tb.Fatal(errs)
	}
	return ix, policies
}

func templateAt(i int) Template {
	return Template{APIVersion: "apps/v1", Kind: "Deployment", Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": fmt.Sprint(i)}}
}

func fleetOf(n int) []Cluster {
	var clusters []Cluster
	for i := range n {
		clusters = append(clusters, Cluster{Name: fmt.Sprintf("m%d", i), Ready: true, Available: new(int64(100 + i)), Region: fmt.Sprint(i % 3)})
	}
	return clusters
}

// A new template among 10,000 policies.
func BenchmarkMatchAmongMany(b *testing.B) {
	ix, _ := manyPolicies(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := ix.Match(templateAt(i%many), ""); !ok {
			b.Fatal("no policy")
		}
		i++
	}
}

// All 10,000 templates matched and placed anew in ten clusters.
func BenchmarkPlaceAll(b *testing.B) {
	ix, _ := manyPolicies(b)
	clusters := fleetOf(10)
	b.ReportAllocs()
	for b.Loop() {
		for i := range many {
			p, _ := ix.Match(templateAt(i), "")
			d := Place(Input{UID: p.UID, Placement: p.Spec.Placement, Divisible: true, Replicas: 7, Clusters: clusters, Fresh: true})
			if !d.OK() {
				b.Fatal(d.Message)
			}
		}
	}
}

// A change of one of 10,000 policies.
func BenchmarkPolicyChange(b *testing.B) {
	ix, policies := manyPolicies(b)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		changed := *policies[i%many]
		ix.Put(&changed)
		policies[i%many] = &changed
		i++
	}
}

// The index after many changes is the index of what is there.
func TestIndexFollowsChanges(t *testing.T) {
	ix, policies := manyPolicies(t)
	for i, p := range policies {
		switch i % 3 {
		case 0:
			ix.Drop(p.Namespace, p.Name)
		case 1:
			moved := *p
			moved.UID = "moved-" + p.UID
			moved.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "ConfigMap", Name: p.Name}}
			if errs := ix.Put(&moved); len(errs) > 0 {
				t.Fatal(errs)
			}
		}
	}
	for i := 1100; i < many; i++ {
		p, ok := ix.Match(templateAt(i), "")
		if named := ok && p.Name == policies[i].Name; named != (i%3 == 2) {
			t.Fatalf("template %d: %v", i, p)
		}
		moved, ok := ix.Match(Template{APIVersion: "v1", Kind: "ConfigMap", Namespace: policies[i].Namespace, Name: policies[i].Name}, "")
		if ok != (i%3 == 1) || ok && moved.UID != "moved-"+policies[i].UID {
			t.Fatalf("ConfigMap %d: %v", i, moved)
		}
		if _, known := ix.Policy(policies[i].UID); known != (i%3 == 2) {
			t.Fatalf("policy %d is known: %v", i, known)
		}
	}
	if kinds := ix.Kinds(); len(kinds) != 2 {
		t.Errorf("kinds %v", kinds)
	}
	for _, p := range policies {
		ix.Drop(p.Namespace, p.Name)
	}
	if len(ix.slots)+len(ix.kinds)+len(ix.byUID)+len(ix.byName) != 0 {
		t.Errorf("left: %d slots, %d kinds, %d ids, %d names", len(ix.slots), len(ix.kinds), len(ix.byUID), len(ix.byName))
	}
}

func selectorFor(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}
