package placement

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

func TestParseClusters(t *testing.T) {
	for text, want := range map[string][]string{
		"m1": {"m1"}, "m2, m1,m2 ,": {"m1", "m2"}, "": nil, " , ": nil, "m1;m2": nil, "M1": nil, "*": nil,
	} {
		got, err := ParseClusters(text)
		if (err != nil) != (want == nil) {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// Within a limit exactly those clusters match that are allowed and that match
// without it, whatever the affinity says.
func TestLimitIsTheIntersection(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		some := func(what string, least int) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), least, len(all), rapid.ID).Draw(t, what)
		}
		affinity := func() policyv1alpha1.ClusterAffinity {
			return policyv1alpha1.ClusterAffinity{ClusterNames: some("names", 0), ExcludeClusters: some("exclude", 0)}
		}
		single := affinity()
		p := &policyv1alpha1.Placement{ClusterAffinity: &single}
		if rapid.Bool().Draw(t, "groups") {
			p = &policyv1alpha1.Placement{ClusterAffinities: []policyv1alpha1.ClusterAffinityTerm{
				{ClusterAffinity: affinity(), OverflowAffinities: []policyv1alpha1.OverflowClusterAffinity{{ClusterAffinity: affinity()}}},
			}}
		}
		allowed := some("allowed", 1)
		limited := Limit(p, allowed)
		pairs := [][2]*policyv1alpha1.ClusterAffinity{{p.ClusterAffinity, limited.ClusterAffinity}}
		if len(p.ClusterAffinities) > 0 {
			was, is := &p.ClusterAffinities[0], &limited.ClusterAffinities[0]
			pairs = [][2]*policyv1alpha1.ClusterAffinity{
				{&was.ClusterAffinity, &is.ClusterAffinity}, {&was.OverflowAffinities[0].ClusterAffinity, &is.OverflowAffinities[0].ClusterAffinity},
			}
		}
		for _, pair := range pairs {
			was, errWas := CompileAffinity(pair[0])
			is, errIs := CompileAffinity(pair[1])
			if errWas != nil || errIs != nil {
				t.Fatal(errWas, errIs)
			}
			for _, name := range all {
				c := &Cluster{Name: name}
				if want := was.Matches(c) && slices.Contains(allowed, name); is.Matches(c) != want {
					t.Fatalf("%s: %v, want %v: %+v within %v is %+v", name, !want, want, pair[0], allowed, pair[1])
				}
			}
		}
	})
}
