// Package override changes rendered objects per cluster, as OverridePolicies
// say. Cluster policies come first, then those of the namespace; within each
// the least specific first, then by name, so that the last word is the most
// specific one. Pure functions.
package override

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

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
	selectors []selector
	rules     []rule
}

// Index holds policies ready to match.
type Index struct {
	policies []compiled
}

// NewIndex compiles policies. One with an unusable part is left out as a whole
// and reported.
func NewIndex(policies []Policy) (*Index, []error) {
	ix := &Index{}
	var errs []error
	for _, p := range policies {
		c, err := compile(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("override policy %s/%s: %w", p.Namespace, p.Name, err))
			continue
		}
		ix.policies = append(ix.policies, c)
	}
	return ix, errs
}

func compile(p Policy) (compiled, error) {
	c := compiled{Policy: p}
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
	for i, r := range p.Spec.OverrideRules {
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

// Rules of one template, in the order of application.
type Rules struct {
	policies []compiled
}

// Empty says whether nothing is overridden in any cluster.
func (r Rules) Empty() bool { return len(r.policies) == 0 }

// For finds the rules of a template.
func (ix *Index) For(t placement.Template) Rules {
	type ranked struct {
		compiled
		rank int
	}
	var found []ranked
	for i := range ix.policies {
		if n := ix.policies[i].specificity(t); n > 0 {
			found = append(found, ranked{ix.policies[i], n})
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
