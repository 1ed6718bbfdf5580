package engine

import (
	"testing"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

func TestLimitOfNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		limit  limit
		allows bool
		names  int
	}{
		"none":           {limit{}, true, 0},
		"of its own":     {limit{namespace: "n", clusters: []string{"m1"}}, true, 1},
		"another":        {limit{namespace: "n", clusters: []string{"m2"}}, false, 1},
		"cannot be read": {limit{namespace: "n", problem: "names no cluster"}, false, 0},
	} {
		if got := c.limit.allows("m1"); got != c.allows {
			t.Errorf("%s: allows m1: %v", name, got)
		}
		want := &workv1alpha2.ResourceBindingSpec{Placement: &policyv1alpha1.Placement{}}
		c.limit.apply(want)
		if a := want.Placement.ClusterAffinity; (a != nil) != (c.names > 0) || a != nil && len(a.ClusterNames) != c.names {
			t.Errorf("%s: %+v", name, want.Placement)
		}
	}
}
