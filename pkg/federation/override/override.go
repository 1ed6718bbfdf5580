// Package override changes rendered objects per cluster, as OverridePolicies
// say. Cluster policies come first, then those of the namespace; within each
// the least specific first, then by name, so that the last word is the most
// specific one. Pure functions.
package override

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Policy is an OverridePolicy, or a ClusterOverridePolicy when Namespace is
// empty.
type Policy struct {
	Namespace, Name string
	Spec            policyv1alpha1.OverrideSpec
}

type rule struct {
	affinity   placement.Affinity
	overriders policyv1alpha1.Overriders
}

type selector struct {
	policyv1alpha1.ResourceSelector
	labels labels.Selector
}

type compiled struct {
	Policy
	// version tells this state of the policy from any other, and from any of
	// another policy.
	version   uint64
	selectors []selector
	rules     []rule
}

// slot is where a policy is filed: its namespace, and the kind and the name of
// a selector, which may be empty.
type slot struct {
	namespace, apiVersion, kind, name string
}

// Index holds policies ready to match.
type Index struct {
	mu       sync.RWMutex
	policies map[types.NamespacedName]*compiled
	slots    map[slot][]*compiled
}

// NewIndex compiles policies. One with an unusable part is left out as a whole
// and reported.
func NewIndex(policies []Policy) (*Index, []error) {
	ix := &Index{policies: map[types.NamespacedName]*compiled{}, slots: map[slot][]*compiled{}}
	var errs []error
	for _, p := range policies {
		if err := ix.Put(p); err != nil {
			errs = append(errs, err)
		}
	}
	return ix, errs
}

// Put files a policy in place of the one of its name.
func (ix *Index) Put(p Policy) error {
	c, err := compile(p)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	ix.drop(name)
	if err != nil {
		return fmt.Errorf("override policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	ix.policies[name] = &c
	for at := range c.slots() {
		ix.slots[at] = append(ix.slots[at], &c)
	}
	return nil
}

// Drop takes a policy out.
func (ix *Index) Drop(namespace, name string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.drop(types.NamespacedName{Namespace: namespace, Name: name})
}

func (ix *Index) drop(name types.NamespacedName) {
	c := ix.policies[name]
	if c == nil {
		return
	}
	delete(ix.policies, name)
	for at := range c.slots() {
		left := slices.DeleteFunc(ix.slots[at], func(x *compiled) bool { return x == c })
		if ix.slots[at] = left; len(left) == 0 {
			delete(ix.slots, at)
		}
	}
}

func (c *compiled) slots() map[slot]struct{} {
	out := map[slot]struct{}{}
	for _, s := range c.selectors {
		out[slot{c.Namespace, s.APIVersion, s.Kind, s.Name}] = struct{}{}
	}
	if len(c.selectors) == 0 {
		out[slot{namespace: c.Namespace}] = struct{}{}
	}
	return out
}

// candidates may match a template.
func (ix *Index) candidates(t placement.Template) map[*compiled]struct{} {
	out := map[*compiled]struct{}{}
	for _, ns := range []string{"", t.Namespace} {
		for _, at := range []slot{{namespace: ns}, {ns, t.APIVersion, t.Kind, ""}, {ns, t.APIVersion, t.Kind, t.Name}} {
			for _, c := range ix.slots[at] {
				out[c] = struct{}{}
			}
		}
	}
	return out
}

var versions atomic.Uint64

func compile(p Policy) (compiled, error) {
	c := compiled{Policy: p, version: versions.Add(1)}
	for i, s := range p.Spec.ResourceSelectors {
		x := selector{ResourceSelector: s, labels: labels.Everything()}
		if s.LabelSelector != nil && s.Name == "" {
			sel, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
			if err != nil {
				return c, fmt.Errorf("resourceSelectors[%d]: %w", i, err)
			}
			x.labels = sel
		}
		c.selectors = append(c.selectors, x)
	}
	rules := p.Spec.OverrideRules
	if p.Spec.Overriders != nil {
		former := policyv1alpha1.RuleWithCluster{TargetCluster: p.Spec.TargetCluster, Overriders: *p.Spec.Overriders}
		rules = append([]policyv1alpha1.RuleWithCluster{former}, rules...)
	}
	for i, r := range rules {
		a, err := placement.CompileAffinity(r.TargetCluster)
		if err != nil {
			return c, fmt.Errorf("overrideRules[%d]: %w", i, err)
		}
		c.rules = append(c.rules, rule{affinity: a, overriders: r.Overriders})
	}
	return c, nil
}

// specificity: 1 all, 2 by kind, 3 by label, 4 by name; 0 does not match.
func (c *compiled) specificity(t placement.Template) int {
	if c.Namespace != "" && c.Namespace != t.Namespace {
		return 0
	}
	if len(c.selectors) == 0 {
		if Guarded(t.APIVersion) {
			return 0
		}
		return 1
	}
	best := 0
	for _, s := range c.selectors {
		if s.APIVersion != t.APIVersion || s.Kind != t.Kind || s.Namespace != "" && s.Namespace != t.Namespace {
			continue
		}
		switch {
		case s.Name != "":
			if s.Name == t.Name {
				best = max(best, 4)
			}
		case s.LabelSelector != nil:
			if s.labels.Matches(t.Labels) {
				best = max(best, 3)
			}
		default:
			best = max(best, 2)
		}
	}
	return best
}

// Has says whether there is a policy of this name; without a namespace, a
// cluster policy.
func (ix *Index) Has(namespace, name string) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.policies[types.NamespacedName{Namespace: namespace, Name: name}] != nil
}

// Guarded kinds give rights, judge requests or define kinds: they are changed
// only by a policy that names the kind, which takes the right to escalate.
func Guarded(apiVersion string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && GuardedGroup(gv.Group)
}

// GuardedGroup is Guarded for a group.
func GuardedGroup(group string) bool {
	switch group {
	case "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io":
		return true
	}
	return false
}

// Rules of one template, in the order of application.
type Rules struct {
	policies []*compiled
}

// Empty says whether nothing is overridden in any cluster.
func (r Rules) Empty() bool { return len(r.policies) == 0 }

// Versions are equal for the same policies in the same state.
func (r Rules) Versions() []uint64 {
	var out []uint64
	for _, p := range r.policies {
		out = append(out, p.version)
	}
	return out
}

// For finds the rules of a template.
func (ix *Index) For(t placement.Template) Rules {
	type ranked struct {
		*compiled
		rank int
	}
	var found []ranked
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for c := range ix.candidates(t) {
		if n := c.specificity(t); n > 0 {
			found = append(found, ranked{c, n})
		}
	}
	slices.SortFunc(found, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(min(len(a.Namespace), 1), min(len(b.Namespace), 1)), cmp.Compare(a.rank, b.rank), cmp.Compare(a.Name, b.Name))
	})
	var out Rules
	for _, f := range found {
		out.policies = append(out.policies, f.compiled)
	}
	return out
}

// Apply changes obj, which the caller owns, for one cluster. On an error the
// object must not be used.
func (r Rules) Apply(obj *unstructured.Unstructured, cluster *placement.Cluster) error {
	for _, p := range r.policies {
		for i, rule := range p.rules {
			if !rule.affinity.Matches(cluster) {
				continue
			}
			if err := apply(obj, rule.overriders); err != nil {
				return fmt.Errorf("override policy %s/%s: overrideRules[%d]: %w", p.Namespace, p.Name, i, err)
			}
		}
	}
	return nil
}
