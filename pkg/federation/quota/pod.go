package quota

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
)

// workload is what is read of a template that makes Pods.
type workload struct {
	Spec struct {
		Replicas    *int64                  `json:"replicas"`
		Parallelism *int64                  `json:"parallelism"`
		Template    *corev1.PodTemplateSpec `json:"template"`
		JobTemplate struct {
			Spec struct {
				Parallelism *int64                  `json:"parallelism"`
				Template    *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// PodOf is what one Pod of a workload takes of a quota, and how many there are to
// be in a cluster that has the workload whole: one at least of a kind whose
// number only the cluster knows.
func PodOf(q *corev1.ResourceQuota, gk schema.GroupKind, raw []byte) (corev1.ResourceList, int64) {
	var w workload
	if json.Unmarshal(raw, &w) != nil {
		return nil, 0 // a workload of another shape
	}
	number := w.Spec.Replicas
	switch gk.Kind {
	case "Job":
		number = w.Spec.Parallelism
		for _, c := range w.Status.Conditions {
			if (c.Type == "Complete" || c.Type == "Failed") && c.Status == metav1.ConditionTrue {
				return nil, 0
			}
		}
	case "CronJob":
		number, w.Spec.Template = w.Spec.JobTemplate.Spec.Parallelism, w.Spec.JobTemplate.Spec.Template
	}
	if w.Spec.Template == nil {
		return nil, 0
	}
	n := int64(1)
	if number != nil {
		n = max(*number, 0)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Labels: w.Spec.Template.Labels}, Spec: w.Spec.Template.Spec}
	corev1defaults.SetObjectDefaults_Pod(pod)
	evaluator := core.NewPodEvaluator(nil, clock.RealClock{})
	inForce := &corev1.ResourceQuota{Spec: q.Spec, Status: corev1.ResourceQuotaStatus{Hard: q.Spec.Hard}}
	if matches, err := evaluator.Matches(inForce, pod); err != nil || !matches {
		return nil, 0
	}
	usage, err := evaluator.Usage(pod)
	if err != nil {
		return nil, 0
	}
	return quotav1.Mask(usage, quotav1.ResourceNames(q.Spec.Hard)), n
}

// Times is n of it.
func Times(one corev1.ResourceList, n int64) corev1.ResourceList {
	out := make(corev1.ResourceList, len(one))
	for name, q := range one {
		q.Mul(n)
		out[name] = q
	}
	return out
}
