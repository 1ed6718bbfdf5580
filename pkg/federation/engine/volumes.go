package engine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// hasClaims says whether a workload keeps data in PersistentVolumeClaims.
func (s shape) hasClaims() bool {
	if len(s.Spec.VolumeClaimTemplates) > 0 {
		return true
	}
	t := s.Spec.Template
	return t != nil && t.Spec != nil && slices.ContainsFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// anchored keeps a workload where its volumes are, unless it may leave them.
func (e *Engine) anchored(t *template, s shape, in placement.Input, decided placement.Decision) placement.Decision {
	if !decided.OK() || !s.hasClaims() || t.Annotations[placement.MoveVolumesAnnotation] == "true" {
		return decided
	}
	held := slices.DeleteFunc(slices.Clone(in.Previous), func(p placement.Target) bool { return e.member(p.Cluster) == nil })
	r := in.Placement.ReplicaScheduling
	divided := in.Divisible && r != nil && r.ReplicaSchedulingType != policyv1alpha1.ReplicasDuplicated
	return placement.Anchor(held, decided, divided)
}
