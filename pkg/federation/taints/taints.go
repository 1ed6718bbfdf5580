// Package taints keeps the taints of Clusters:
//
//	condition Ready            -> not-ready, unreachable (NoSchedule)
//	ClusterTaintPolicies       -> what they add and remove
//	taints that let replicas leave -> the time since when they are there
//
// Decide is a pure function; Run watches Clusters and policies and writes
// spec.taints. Placement reads the taints, see package placement.
package taints

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Taints that follow the condition Ready.
const (
	NotReady    = "cluster.karmada.io/not-ready"
	Unreachable = "cluster.karmada.io/unreachable"
)

// Decide returns the taints that a Cluster should have, and whether that is
// something new. A policy that cannot be used is reported and changes nothing.
func Decide(c *clusterv1alpha1.Cluster, policies []policyv1alpha1.ClusterTaintPolicy, now time.Time) (taints []corev1.Taint, changed bool, err error) {
	s := set{taints: slices.Clone(c.Spec.Taints), now: metav1.NewTime(now.Truncate(time.Second))}
	s.followReady(c)
	slices.SortFunc(policies, func(a, b policyv1alpha1.ClusterTaintPolicy) int { return compare(a.Name, b.Name) })
	for i := range policies {
		if e := s.follow(c, &policies[i]); e != nil && err == nil {
			err = fmt.Errorf("cluster taint policy %s: %w", policies[i].Name, e)
		}
	}
	s.stamp()
	return s.taints, !equality.Semantic.DeepEqual(s.taints, c.Spec.Taints), err
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// set is the list of taints on its way.
type set struct {
	taints []corev1.Taint
	now    metav1.Time
}

func (s *set) find(key string, effect corev1.TaintEffect) int {
	return slices.IndexFunc(s.taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}

func (s *set) add(key, value string, effect corev1.TaintEffect) {
	if i := s.find(key, effect); i >= 0 {
		s.taints[i].Value = value
		return
	}
	s.taints = append(s.taints, corev1.Taint{Key: key, Value: value, Effect: effect, TimeAdded: &s.now})
}

func (s *set) remove(key string, effect corev1.TaintEffect) {
	if i := s.find(key, effect); i >= 0 {
		s.taints = slices.Delete(slices.Clone(s.taints), i, i+1)
	}
}

// followReady: without a condition nobody has looked yet, and nothing changes.
func (s *set) followReady(c *clusterv1alpha1.Cluster) {
	ready := meta.FindStatusCondition(c.Status.Conditions, clusterv1alpha1.ClusterConditionReady)
	if ready == nil {
		return
	}
	unreachable := ready.Status == metav1.ConditionUnknown || ready.Reason == clusterv1alpha1.ReasonClusterNotReachable
	for key, wanted := range map[string]bool{
		NotReady:    ready.Status != metav1.ConditionTrue && !unreachable,
		Unreachable: ready.Status != metav1.ConditionTrue && unreachable,
	} {
		if wanted {
			s.add(key, "", corev1.TaintEffectNoSchedule)
		} else {
			s.remove(key, corev1.TaintEffectNoSchedule)
		}
	}
}

func (s *set) follow(c *clusterv1alpha1.Cluster, p *policyv1alpha1.ClusterTaintPolicy) error {
	affinity, err := placement.CompileAffinity(p.Spec.TargetClusters)
	if err != nil {
		return err
	}
	if !affinity.Matches(seen(c)) {
		return nil
	}
	if holds(p.Spec.AddOnConditions, c.Status.Conditions) {
		for _, t := range p.Spec.Taints {
			s.add(t.Key, t.Value, t.Effect)
		}
	}
	if holds(p.Spec.RemoveOnConditions, c.Status.Conditions) {
		for _, t := range p.Spec.Taints {
			s.remove(t.Key, t.Effect)
		}
	}
	return nil
}

// seen is a Cluster as affinities see it.
func seen(c *clusterv1alpha1.Cluster) *placement.Cluster {
	out := &placement.Cluster{Name: c.Name, Labels: c.Labels, Provider: c.Spec.Provider, Region: c.Spec.Region, Zones: c.Spec.Zones}
	if len(out.Zones) == 0 && c.Spec.Zone != "" {
		out.Zones = []string{c.Spec.Zone}
	}
	return out
}

// holds says whether all conditions match; none never does.
func holds(wanted []policyv1alpha1.MatchCondition, conditions []metav1.Condition) bool {
	for _, w := range wanted {
		status := metav1.ConditionUnknown
		if c := meta.FindStatusCondition(conditions, w.ConditionType); c != nil {
			status = c.Status
		}
		if slices.Contains(w.StatusValues, status) != (w.Operator == "In") {
			return false
		}
	}
	return len(wanted) > 0
}

// stamp dates the taints from which time is counted.
func (s *set) stamp() {
	for i, t := range s.taints {
		if t.TimeAdded == nil && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == policyv1alpha1.TaintEffectPreferNoExecute) {
			s.taints[i].TimeAdded = &s.now
		}
	}
}
