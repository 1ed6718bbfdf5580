package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// Cluster is what placement knows of a member.
type Cluster struct {
	Name     string
	Labels   labels.Set
	Provider string
	Region   string
	Zones    []string
	Taints   []corev1.Taint
	// Ready is false while the member cannot be trusted to take anything new.
	Ready bool
	// Available is how many replicas of the template the member can hold
	// besides those it has; nil when that is not known.
	Available *int64
	// Unmade is how many of the replicas that the member has been told it says
	// it cannot make.
	Unmade int32
	// Failed says why nothing is counted on that is there, where the policy
	// lets replicas leave such a cluster.
	Failed string
	// Lacks names what the member would need to take the template.
	Lacks string
}

// Affinity is a compiled ClusterAffinity.
type Affinity struct {
	selector labels.Selector
	names    []string
	exclude  []string
	fields   []policyv1alpha1.FieldRequirement
}

// CompileAffinity checks an affinity; nil matches every cluster.
func CompileAffinity(a *policyv1alpha1.ClusterAffinity) (Affinity, error) {
	if a == nil {
		return Affinity{selector: labels.Everything()}, nil
	}
	out := Affinity{selector: labels.Everything(), names: a.ClusterNames, exclude: a.ExcludeClusters}
	if a.LabelSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil {
			return Affinity{}, fmt.Errorf("clusterAffinity.labelSelector: %w", err)
		}
		out.selector = s
	}
	if a.FieldSelector != nil {
		for _, r := range a.FieldSelector.MatchExpressions {
			if r.Operator != "In" && r.Operator != "NotIn" || !slices.Contains([]string{"provider", "region", "zone"}, r.Key) {
				return Affinity{}, fmt.Errorf("clusterAffinity.fieldSelector: %q %q is not supported", r.Key, r.Operator)
			}
		}
		out.fields = a.FieldSelector.MatchExpressions
	}
	return out, nil
}

// Matches says whether all parts of the affinity hold for the cluster.
func (a Affinity) Matches(c *Cluster) bool {
	if len(a.names) > 0 && !slices.Contains(a.names, c.Name) || slices.Contains(a.exclude, c.Name) {
		return false
	}
	return a.selector.Matches(c.Labels) && !slices.ContainsFunc(a.fields, func(r policyv1alpha1.FieldRequirement) bool {
		return !fieldHolds(r, c)
	})
}

func fieldHolds(r policyv1alpha1.FieldRequirement, c *Cluster) bool {
	var have []string
	switch r.Key {
	case "provider":
		have = []string{c.Provider}
	case "region":
		have = []string{c.Region}
	case "zone":
		have = c.Zones
	}
	in := slices.ContainsFunc(have, func(v string) bool { return slices.Contains(r.Values, v) })
	return in == (r.Operator == "In")
}

// untolerated finds a taint that keeps new replicas away.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	for _, t := range taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute && t.Effect != policyv1alpha1.TaintEffectPreferNoExecute {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(tol corev1.Toleration) bool { return tolerates(tol, t) }) {
			return t, true
		}
	}
	return corev1.Taint{}, false
}

func tolerates(tol corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	default:
		return false
	}
}
