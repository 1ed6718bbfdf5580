package engine

import (
	"testing"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// A deleted policy moves nothing: the default policy speaks for new templates and
// for those that it has spoken for.
func TestDefaultPolicySpeaks(t *testing.T) {
	policy := &placement.Policy{Name: "default", UID: "d", Default: true}
	own := &placement.Policy{Name: "own", Namespace: "ns", UID: "o"}
	index, errs := placement.NewIndex([]*placement.Policy{policy, own})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	placed := func(claim string) *binding {
		b := &binding{Spec: workv1alpha2.ResourceBindingSpec{Placement: &policyv1alpha1.Placement{}}}
		if claim != "" {
			b.Labels = map[string]string{clusterPolicyID: claim}
		}
		return b
	}
	for name, c := range map[string]struct {
		policy *placement.Policy
		b      *binding
		want   bool
	}{
		"new":                     {policy, nil, true},
		"needed by others so far": {policy, &binding{}, true},
		"its own":                 {policy, placed("d"), true},
		"of a deleted policy":     {policy, placed("gone"), false},
		"of nobody any more":      {policy, placed(""), false},
		"of another policy":       {policy, placed("o"), false},
		"a policy of the user":    {own, placed("gone"), true},
	} {
		if got := speaks(index, c.policy, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
