// Package rebalance serves WorkloadRebalancers: it asks for a fresh decision
// about each workload, once, by the binding's spec.rescheduleTriggeredAt, which
// the engine answers.
//
//	WorkloadRebalancer -> Pending, Trigger -> bindings
//	                   -> Result           -> its status, its end
package rebalance

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/apps/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

// Pending are the workloads that have no success yet.
func Pending(r *appsv1alpha1.WorkloadRebalancer) []appsv1alpha1.ObjectReference {
	var out []appsv1alpha1.ObjectReference
	for _, w := range r.Spec.Workloads {
		if !slices.ContainsFunc(r.Status.ObservedWorkloads, func(o appsv1alpha1.ObservedWorkload) bool {
			return o.Workload == w && (o.Result == appsv1alpha1.RebalanceSuccessful || r.Status.ObservedGeneration == r.Generation && o.Result != "")
		}) && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// Trigger is the time to write to a binding; zero when it has been written. It
// is when the rebalancer was created, or now for a workload that was named
// later; after the last decision in any case, of which only the second is known.
func Trigger(r *appsv1alpha1.WorkloadRebalancer, spec *workv1alpha2.ResourceBindingSpec, status *workv1alpha2.ResourceBindingStatus, now time.Time) metav1.Time {
	at := r.CreationTimestamp
	if r.Status.ObservedGeneration > 0 && r.Status.ObservedGeneration != r.Generation {
		at = metav1.NewTime(now.Truncate(time.Second))
	}
	if asked := spec.RescheduleTriggeredAt; asked != nil && !asked.Before(&at) {
		return metav1.Time{}
	}
	if last := status.LastScheduledTime; last != nil && !last.Before(&at) {
		at = metav1.NewTime(last.Add(time.Second))
	}
	return at
}

// Result is the status after the pending workloads have been dealt with: those
// in failed have no binding.
func Result(r *appsv1alpha1.WorkloadRebalancer, failed map[appsv1alpha1.ObjectReference]bool, now time.Time) appsv1alpha1.WorkloadRebalancerStatus {
	pending := Pending(r)
	out := appsv1alpha1.WorkloadRebalancerStatus{ObservedGeneration: r.Generation, FinishTime: r.Status.FinishTime}
	for _, w := range r.Spec.Workloads {
		o := appsv1alpha1.ObservedWorkload{Workload: w, Result: appsv1alpha1.RebalanceSuccessful}
		if i := slices.IndexFunc(r.Status.ObservedWorkloads, func(o appsv1alpha1.ObservedWorkload) bool { return o.Workload == w }); i >= 0 && !slices.Contains(pending, w) {
			o = r.Status.ObservedWorkloads[i]
		} else if failed[w] {
			o.Result, o.Reason = appsv1alpha1.RebalanceFailed, appsv1alpha1.RebalanceObjectNotFound
		}
		out.ObservedWorkloads = append(out.ObservedWorkloads, o)
	}
	if out.FinishTime == nil || len(pending) > 0 {
		finished := metav1.NewTime(now.Truncate(time.Second))
		out.FinishTime = &finished
	}
	return out
}

// End is when the rebalancer is to be deleted; false while it stays.
func End(r *appsv1alpha1.WorkloadRebalancer) (time.Time, bool) {
	if r.Spec.TTLSecondsAfterFinished == nil || r.Status.FinishTime == nil || r.Status.ObservedGeneration != r.Generation {
		return time.Time{}, false
	}
	return r.Status.FinishTime.Add(time.Duration(*r.Spec.TTLSecondsAfterFinished) * time.Second), true
}
