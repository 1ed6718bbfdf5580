package admission

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/policy"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// ReservedLabelPlugin refuses the cluster label in stored templates and their
// selectors: it says where an object is, which a template cannot know, and a
// Service that selects by it would select nothing inside a member.
const ReservedLabelPlugin = "IsthmusReservedLabel"

// RegisterReservedLabel adds the plugin to a set of plugins.
func RegisterReservedLabel(plugins *admission.Plugins) {
	plugins.Register(ReservedLabelPlugin, func(io.Reader) (admission.Interface, error) {
		return reservedLabel{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type reservedLabel struct{ *admission.Handler }

var _ admission.ValidationInterface = reservedLabel{}

// Validate implements admission.ValidationInterface.
func (reservedLabel) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	path := reservedIn(a.GetObject())
	if path == nil {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{field.Forbidden(path,
		fmt.Sprintf("the key %s is reserved: it is added to what is served and names the cluster of an object; use a PropagationPolicy to choose clusters", cache.ClusterLabel))})
}

// reservedIn finds where an object uses the reserved key; nil when nowhere.
func reservedIn(o runtime.Object) *field.Path {
	if accessor, err := meta.Accessor(o); err == nil && has(accessor.GetLabels()) {
		return field.NewPath("metadata", "labels")
	}
	spec := field.NewPath("spec")
	switch o := o.(type) {
	case *apps.Deployment:
		return workload(spec, o.Spec.Selector, &o.Spec.Template)
	case *apps.StatefulSet:
		return workload(spec, o.Spec.Selector, &o.Spec.Template)
	case *apps.DaemonSet:
		return workload(spec, o.Spec.Selector, &o.Spec.Template)
	case *apps.ReplicaSet:
		return workload(spec, o.Spec.Selector, &o.Spec.Template)
	case *batch.Job:
		return workload(spec, o.Spec.Selector, &o.Spec.Template)
	case *batch.CronJob:
		job := spec.Child("jobTemplate", "spec")
		return workload(job, o.Spec.JobTemplate.Spec.Selector, &o.Spec.JobTemplate.Spec.Template)
	case *core.ReplicationController:
		if has(o.Spec.Selector) {
			return spec.Child("selector")
		}
		if o.Spec.Template != nil {
			return workload(spec, nil, o.Spec.Template)
		}
	case *core.Service:
		if has(o.Spec.Selector) {
			return spec.Child("selector")
		}
	case *policy.PodDisruptionBudget:
		return selector(spec.Child("selector"), o.Spec.Selector)
	case *networking.NetworkPolicy:
		return selector(spec.Child("podSelector"), &o.Spec.PodSelector)
	}
	return nil
}

func workload(spec *field.Path, s *metav1.LabelSelector, template *core.PodTemplateSpec) *field.Path {
	if path := selector(spec.Child("selector"), s); path != nil {
		return path
	}
	if has(template.Labels) {
		return spec.Child("template", "metadata", "labels")
	}
	return nil
}

func selector(path *field.Path, s *metav1.LabelSelector) *field.Path {
	if s == nil {
		return nil
	}
	if has(s.MatchLabels) {
		return path.Child("matchLabels")
	}
	for i, e := range s.MatchExpressions {
		if e.Key == cache.ClusterLabel {
			return path.Child("matchExpressions").Index(i)
		}
	}
	return nil
}

func has(labels map[string]string) bool {
	_, found := labels[cache.ClusterLabel]
	return found
}
