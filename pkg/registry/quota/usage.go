package quota

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
)

// unwritten says whether the status does not speak of the present limits yet.
func unwritten(q *corev1.ResourceQuota) bool {
	return q.Status.Hard == nil || q.Status.Used == nil || !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard)
}

// counted returns the quota with this usage in its status, and whether that is
// a change. What nobody counts keeps the usage it had.
func counted(q *corev1.ResourceQuota, usage corev1.ResourceList) (*corev1.ResourceQuota, bool) {
	used := quotav1.Add(corev1.ResourceList{}, q.Status.Used)
	maps.Copy(used, usage)
	used = quotav1.Mask(used, quotav1.ResourceNames(q.Spec.Hard))
	if !unwritten(q) && quotav1.Equals(used, q.Status.Used) {
		return q, false
	}
	next := q.DeepCopy()
	next.Status = corev1.ResourceQuotaStatus{Hard: quotav1.Add(corev1.ResourceList{}, q.Spec.Hard), Used: used}
	return next, true
}

// constrainsPods says whether the Pods of the namespace have to be followed.
func constrainsPods(q *corev1.ResourceQuota) bool {
	names := quotav1.ResourceNames(q.Spec.Hard)
	if len(core.NewPodEvaluator(nil, nil).MatchingResources(names)) > 0 {
		return true
	}
	for _, name := range names {
		if strings.HasPrefix(string(name), "count/pods") {
			return true
		}
	}
	return false
}
