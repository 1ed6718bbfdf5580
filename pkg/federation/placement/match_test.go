package placement

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

func named(t *testing.T, ns, name, selectors string, change ...func(*Policy)) *Policy {
	t.Helper()
	p := &Policy{Namespace: ns, Name: name, UID: types.UID(name)}
	if err := yaml.UnmarshalStrict([]byte(selectors), &p.Spec.ResourceSelectors); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func priority(n int32) func(*Policy) { return func(p *Policy) { p.Spec.Priority = new(n) } }
func preempting(p *Policy)           { p.Spec.Preemption = policyv1alpha1.PreemptAlways }
func byDefault(p *Policy)            { p.Default = true }

const (
	aName  = `[{apiVersion: apps/v1, kind: Deployment, name: web}]`
	aLabel = `[{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchLabels: {app: web}}}]`
	aKind  = `[{apiVersion: apps/v1, kind: Deployment}]`
)

var web = Template{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "d", Name: "web", Labels: map[string]string{"app": "web"}}

func TestMatch(t *testing.T) {
	exact := web
	exact.ExactName = true
	for name, c := range map[string]struct {
		template  Template
		policies  []*Policy
		claimedBy types.UID
		want      string
	}{
		"name over label":                      {web, []*Policy{named(t, "d", "b", aName), named(t, "d", "a", aLabel)}, "", "b"},
		"label over kind":                      {web, []*Policy{named(t, "d", "b", aLabel), named(t, "d", "a", aKind)}, "", "b"},
		"priority over name":                   {web, []*Policy{named(t, "d", "b", aKind, priority(1)), named(t, "d", "a", aName)}, "", "b"},
		"lower name":                           {web, []*Policy{named(t, "d", "b", aKind), named(t, "d", "a", aKind)}, "", "a"},
		"namespace over cluster":               {web, []*Policy{named(t, "d", "b", aKind), named(t, "", "a", aName, priority(9))}, "", "b"},
		"anything over a default":              {web, []*Policy{named(t, "", "b", aKind, priority(-9999999)), named(t, "", "a", aName, byDefault)}, "", "b"},
		"a default alone":                      {web, []*Policy{named(t, "", "a", aKind, byDefault)}, "", "a"},
		"another namespace":                    {web, []*Policy{named(t, "e", "a", aKind)}, "", ""},
		"another version":                      {web, []*Policy{named(t, "d", "a", `[{apiVersion: extensions/v1beta1, kind: Deployment}]`)}, "", ""},
		"cluster policy for a namespace":       {web, []*Policy{named(t, "", "a", `[{apiVersion: apps/v1, kind: Deployment, namespace: d}]`), named(t, "", "b", `[{apiVersion: apps/v1, kind: Deployment, namespace: e}]`)}, "", "a"},
		"a claim holds against a better match": {web, []*Policy{named(t, "d", "a", aKind), named(t, "d", "b", aName, priority(5))}, "a", "a"},
		"a claim is lost to preemption":        {web, []*Policy{named(t, "d", "a", aKind), named(t, "d", "b", aName, priority(5), preempting)}, "a", "b"},
		"no preemption at equal priority":      {web, []*Policy{named(t, "d", "a", aKind), named(t, "d", "b", aName, preempting)}, "a", "a"},
		"cluster never preempts namespace":     {web, []*Policy{named(t, "d", "a", aKind), named(t, "", "b", aName, priority(5), preempting)}, "a", "a"},
		"namespace preempts cluster":           {web, []*Policy{named(t, "", "a", aKind, priority(5)), named(t, "d", "b", aKind, preempting)}, "a", "b"},
		"a default's claim does not hold":      {web, []*Policy{named(t, "", "a", aKind, byDefault), named(t, "d", "b", aKind)}, "a", "b"},
		"a claim ends with its match":          {web, []*Policy{named(t, "d", "a", `[{apiVersion: apps/v1, kind: Deployment, name: other}]`), named(t, "d", "b", aKind)}, "a", "b"},
		"only by name":                         {exact, []*Policy{named(t, "d", "a", aKind, priority(9)), named(t, "d", "b", aName)}, "", "b"},
		"not by kind":                          {exact, []*Policy{named(t, "d", "a", aKind), named(t, "d", "b", aLabel)}, "", ""},
	} {
		ix, errs := NewIndex(c.policies)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		got := ""
		if p, ok := ix.Match(c.template, c.claimedBy); ok {
			got = p.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestUnusableSelectors(t *testing.T) {
	_, errs := NewIndex([]*Policy{
		named(t, "d", "a", `[{apiVersion: apps/v1, kind: Deployment, namespace: e}]`),
		named(t, "d", "b", `[{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}]`),
		named(t, "d", "c", aKind),
	})
	if len(errs) != 2 {
		t.Errorf("errors: %v", errs)
	}
}

func BenchmarkMatch(b *testing.B) {
	var policies []*Policy
	for i := range 10_000 {
		p := &Policy{Namespace: fmt.Sprint("ns", i%100), Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}
		p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint("web", i)}}
		policies = append(policies, p)
	}
	ix, _ := NewIndex(policies)
	t := web
	t.Namespace, t.Name = "ns7", "web107"
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ix.Match(t, ""); !ok {
			b.Fatal("no match")
		}
	}
}
