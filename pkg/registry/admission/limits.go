package admission

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// NamespaceLimitsPlugin lets only those limit a namespace to clusters, or change
// and lift a limit, who have the verb for it.
const NamespaceLimitsPlugin = "IsthmusNamespaceLimits"

// LimitVerb on namespaces is needed to change the annotation.
const LimitVerb = "limit"

// RegisterNamespaceLimits adds the plugin to a set of plugins.
func RegisterNamespaceLimits(plugins *admission.Plugins) {
	plugins.Register(NamespaceLimitsPlugin, func(io.Reader) (admission.Interface, error) {
		return &namespaceLimits{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type namespaceLimits struct {
	*admission.Handler
	rights
}

var _ admission.ValidationInterface = &namespaceLimits{}

// Validate implements admission.ValidationInterface. Subresources are judged as
// well: an update of the status can change annotations.
func (p *namespaceLimits) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != core.Resource("namespaces") || a.GetObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("limits of a namespace: %w", err)
	}
	text, limited := obj.GetAnnotations()[placement.ClustersAnnotation]
	was, wasLimited := "", false
	if old := a.GetOldObject(); old != nil {
		if former, err := meta.Accessor(old); err == nil {
			was, wasLimited = former.GetAnnotations()[placement.ClustersAnnotation]
		}
	}
	if limited == wasLimited && text == was {
		return nil
	}
	if limited {
		if _, err := placement.ParseClusters(text); err != nil {
			return apierrors.NewInvalid(a.GetKind().GroupKind(), obj.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("metadata", "annotations").Key(placement.ClustersAnnotation), text, err.Error()),
			})
		}
	}
	return p.require(ctx, a, authorizer.AttributesRecord{
		Verb: LimitVerb, Name: obj.GetName(), Namespace: obj.GetName(), APIVersion: "v1", Resource: "namespaces",
	}, "may it limit a namespace", fmt.Sprintf("the annotation %s takes the verb %s on namespaces", placement.ClustersAnnotation, LimitVerb))
}
