package engine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// A move is written on the binding, and so is the way back; what does not move
// leaves that as it is.
func TestMovesAreNoted(t *testing.T) {
	at := func(m1, m2 int32) []workv1alpha2.TargetCluster {
		return []workv1alpha2.TargetCluster{{Name: "m2", Replicas: m2}, {Name: "m1", Replicas: m1}}
	}
	var meta metav1.ObjectMeta
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		name     string
		from, to []workv1alpha2.TargetCluster
		before   string
		returned int // the step that is taken back, counted from 1
	}{
		{"placed", nil, at(5, 5), "", 0},
		{"nothing moves", at(5, 5), at(5, 5), "", 0},
		{"nowhere", at(5, 5), nil, "m1=5,m2=5,", 0},
		{"placed again", nil, at(5, 5), "", 3},
		{"a mistake", at(5, 5), at(10, 0), "m1=5,m2=5,", 0},
		{"decided again", at(10, 0), at(10, 0), "m1=5,m2=5,", 0},
		{"put right", at(10, 0), at(5, 5), "m1=10,m2=0,", 5},
		{"decided again", at(5, 5), at(5, 5), "m1=10,m2=0,", 5},
		{"the same mistake", at(5, 5), at(10, 0), "m1=5,m2=5,", 0},
		{"put right again", at(10, 0), at(5, 5), "m1=10,m2=0,", 9},
		{"to a third one", at(5, 5), at(4, 6), "m1=5,m2=5,", 0},
		{"nowhere", at(4, 6), nil, "m1=4,m2=6,", 0},
		{"back from nowhere", nil, at(4, 6), "", 12},
	} {
		now := start.Add(time.Duration(i+1) * time.Minute)
		if err := noteMove(&meta, step.from, step.to, now); err != nil {
			t.Fatal(err)
		}
		want := time.Time{}
		if step.returned > 0 {
			want = start.Add(time.Duration(step.returned) * time.Minute)
		}
		if got := moveOf(&meta); got.From != step.before || !got.Returned.Equal(want) {
			t.Errorf("%s: %+v, want from %q, returned %s", step.name, got, step.before, want)
		}
	}
}
