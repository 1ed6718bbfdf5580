package engine

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// engineWith has one policy over Deployments, and nothing else.
func engineWith(t *testing.T, spec policyv1alpha1.PropagationSpec, overrides ...override.Policy) *Engine {
	t.Helper()
	spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}}
	e := &Engine{decisions: map[marks.Key]*decision{}}
	var errs []error
	e.policies = &policyCache{engine: e}
	e.policies.index, errs = placement.NewIndex([]*placement.Policy{{Namespace: "d", Name: "p", UID: "p1", Spec: spec}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if e.policies.overrider, errs = override.NewIndex(overrides); len(errs) > 0 {
		t.Fatal(errs)
	}
	return e
}

func TestLazyPolicy(t *testing.T) {
	lazy := policyv1alpha1.PropagationSpec{ActivationPreference: policyv1alpha1.LazyActivation}
	tpl := templateOf(t, web)
	placed := func(mark string) *binding {
		b := &binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		b.Spec.Resource.UID, b.Spec.Placement = tpl.UID, &policyv1alpha1.Placement{}
		if mark != "" {
			b.Annotations[contentAnnotation] = mark
		}
		return b
	}
	another := placed("")
	another.Spec.Resource.UID = "former"
	for name, c := range map[string]struct {
		spec    policyv1alpha1.PropagationSpec
		b       *binding
		decided uint64 // content of the last decision
		former  bool
	}{
		"never placed":               {lazy, nil, 0, false},
		"placed, unchanged":          {lazy, placed(contentMark(tpl)), 0, true},
		"changed since":              {lazy, placed("abc"), 0, false},
		"nobody knows":               {lazy, placed(""), 0, true},
		"the last decision knows":    {lazy, placed(""), tpl.content + 1, false},
		"unchanged by that":          {lazy, placed(""), tpl.content, true},
		"another object of the name": {lazy, another, 0, false},
		"not lazy":                   {policyv1alpha1.PropagationSpec{}, placed(contentMark(tpl)), 0, false},
	} {
		e := engineWith(t, c.spec)
		if c.decided != 0 {
			e.decisions[webKey] = &decision{uid: tpl.UID, content: c.decided}
		}
		f := e.follow(webKey, tpl, c.b, referenceOf(webKey, tpl))
		if f.policy == nil || f.former != c.former {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestDependentOverrides(t *testing.T) {
	spec := policyv1alpha1.PropagationSpec{DependentOverrides: []string{"a", "b"}}
	tpl := templateOf(t, web)
	a, b, elsewhere := override.Policy{Namespace: "d", Name: "a"}, override.Policy{Namespace: "d", Name: "b"}, override.Policy{Namespace: "e", Name: "b"}
	for name, c := range map[string]struct {
		there []override.Policy
		waits bool
	}{
		"none": {nil, true}, "one": {[]override.Policy{a}, true}, "another namespace's": {[]override.Policy{a, elsewhere}, true}, "all": {[]override.Policy{a, b}, false},
	} {
		f := engineWith(t, spec, c.there...).follow(webKey, tpl, nil, referenceOf(webKey, tpl))
		if (f.waits != "") != c.waits {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestClaimOfABinding(t *testing.T) {
	tpl := templateOf(t, web)
	policy := func(namespace, uid string, lazy bool) *placement.Policy {
		p := &placement.Policy{Namespace: namespace, Name: "p", UID: policyUID(uid)}
		if lazy {
			p.Spec.ActivationPreference = policyv1alpha1.LazyActivation
		}
		return p
	}
	b := &binding{}
	claim(b, tpl, followed{policy: policy("d", "p1", true)})
	if b.Labels[marks.NamespacePolicyID] != "p1" || b.Annotations[contentAnnotation] != contentMark(tpl) {
		t.Errorf("claimed: %v %v", b.Labels, b.Annotations)
	}
	b.Annotations[contentAnnotation] = "earlier"
	claim(b, tpl, followed{policy: policy("", "p2", true), former: true})
	if claimOf(b) != "p1" || b.Annotations[contentAnnotation] != "earlier" {
		t.Errorf("a policy that must not act yet has claimed it: %v %v", b.Labels, b.Annotations)
	}
	claim(b, tpl, followed{policy: policy("", "p2", false)})
	if claimOf(b) != "p2" || b.Labels[marks.NamespacePolicyID] != "" || b.Annotations[contentAnnotation] != "" || b.Annotations[marks.NamespacePolicyName] != "" {
		t.Errorf("claimed by another: %v %v", b.Labels, b.Annotations)
	}
	claim(b, tpl, followed{})
	if claimOf(b) != "" || b.Annotations[marks.ClusterPolicyName] != "" {
		t.Errorf("claimed by nobody: %v %v", b.Labels, b.Annotations)
	}
}

func TestDifferenceOfClaims(t *testing.T) {
	keys := []string{"a", "b"}
	for name, c := range map[string]struct {
		want, have map[string]string
		patch      map[string]any
	}{
		"nothing": {nil, map[string]string{"x": "y"}, map[string]any{}},
		"there":   {map[string]string{"a": "1"}, map[string]string{"a": "1"}, map[string]any{}},
		"other":   {map[string]string{"a": "2"}, map[string]string{"a": "1"}, map[string]any{"a": "2"}},
		"moved":   {map[string]string{"b": "1"}, map[string]string{"a": "1"}, map[string]any{"a": nil, "b": "1"}},
	} {
		if got := difference(keys, c.want, c.have); !maps.Equal(got, c.patch) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAffinityGroupsOfATemplate(t *testing.T) {
	a := &policyv1alpha1.WorkloadAffinity{Affinity: &policyv1alpha1.WorkloadGroup{GroupByLabelKey: "g"}, AntiAffinity: &policyv1alpha1.WorkloadGroup{GroupByLabelKey: "h"}}
	if g := groupsOf(a, map[string]string{"g": "1"}); g == nil || *g != (workv1alpha2.WorkloadAffinityGroups{AffinityGroup: "g=1"}) {
		t.Errorf("%+v", g)
	}
	if g := groupsOf(a, map[string]string{"x": "1"}); g != nil {
		t.Errorf("without the labels: %+v", g)
	}
	if g := groupsOf(nil, map[string]string{"g": "1"}); g != nil {
		t.Errorf("without the rule: %+v", g)
	}
}
