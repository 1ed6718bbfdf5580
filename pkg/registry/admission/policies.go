package admission

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/eviction"
	"github.com/isthmus-dev/isthmus/pkg/federation/federatedquota"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// PoliciesPlugin completes propagation and override policies, and refuses those
// that could not work, or that would give rights that their author lacks.
const PoliciesPlugin = "IsthmusPolicies"

// RegisterPolicies adds the plugin to a set of plugins.
func RegisterPolicies(plugins *admission.Plugins) {
	plugins.Register(PoliciesPlugin, func(io.Reader) (admission.Interface, error) {
		return &policies{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type policies struct {
	*admission.Handler
	rights
}

var (
	_ admission.MutationInterface   = &policies{}
	_ admission.ValidationInterface = &policies{}
)

// ids are the labels with which policies name themselves.
var ids = map[string]string{"propagationpolicies": marks.NamespacePolicyID, "clusterpropagationpolicies": marks.ClusterPolicyID}

func policyOf(a admission.Attributes) (*unstructured.Unstructured, bool) {
	if a.GetResource().Group != policyv1alpha1.SchemeGroupVersion.Group || a.GetSubresource() != "" {
		return nil, false
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	return u, ok
}

// Admit implements admission.MutationInterface.
func (p *policies) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := policyOf(a)
	if !ok {
		return nil
	}
	if label := ids[a.GetResource().Resource]; label != "" && a.GetOperation() == admission.Create {
		// Always a new one: a copy of a policy is another policy.
		setClaim(u, map[string]string{label: uuid.NewString()}, nil)
	}
	if err := setGracePeriod(u); err != nil {
		return fmt.Errorf("complete policy %s: %w", a.GetName(), err)
	}
	if a.GetNamespace() == "" {
		return nil
	}
	selectors, found, err := unstructured.NestedSlice(u.Object, "spec", "resourceSelectors")
	if err != nil || !found {
		return nil //nolint:nilerr // the schema refuses what is no list
	}
	for _, s := range selectors {
		if m, ok := s.(map[string]any); ok && (m["namespace"] == nil || m["namespace"] == "") {
			m["namespace"] = a.GetNamespace()
		}
	}
	if err := unstructured.SetNestedSlice(u.Object, selectors, "spec", "resourceSelectors"); err != nil {
		return fmt.Errorf("complete policy %s: %w", a.GetName(), err)
	}
	return nil
}

// setGracePeriod fills in the grace period of purgeMode Gracefully, which other
// modes do not have.
func setGracePeriod(u *unstructured.Unstructured) error {
	app, found, err := unstructured.NestedMap(u.Object, "spec", "failover", "application")
	if err != nil || !found {
		return nil //nolint:nilerr // the schema refuses what is no object
	}
	mode, _ := app["purgeMode"].(string)
	if _, set := app["gracePeriodSeconds"]; set || eviction.Mode(policyv1alpha1.PurgeMode(mode)) != policyv1alpha1.PurgeGracefully {
		return nil
	}
	return unstructured.SetNestedField(u.Object, int64(eviction.DefaultGraceSeconds), "spec", "failover", "application", "gracePeriodSeconds")
}

// Validate implements admission.ValidationInterface.
func (p *policies) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	u, ok := policyOf(a)
	if !ok {
		return nil
	}
	if old, isOld := a.GetOldObject().(*unstructured.Unstructured); isOld && reflect.DeepEqual(old.Object["spec"], u.Object["spec"]) {
		return nil
	}
	var selectors []policyv1alpha1.ResourceSelector
	var problems []error
	switch a.GetResource().Resource {
	case "propagationpolicies", "clusterpropagationpolicies":
		var o policyv1alpha1.ClusterPropagationPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil //nolint:nilerr // the schema says it better
		}
		problems = placement.Validate(&placement.Policy{Namespace: a.GetNamespace(), Name: u.GetName(), Spec: o.Spec})
		problems = append(problems, eviction.Validate(o.Spec.Failover)...)
	case "overridepolicies", "clusteroverridepolicies":
		var o policyv1alpha1.ClusterOverridePolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil //nolint:nilerr // the schema says it better
		}
		selectors = o.Spec.ResourceSelectors
		_, problems = override.NewIndex([]override.Policy{{Namespace: a.GetNamespace(), Name: u.GetName(), Spec: o.Spec}})
	case "federatedresourcequotas":
		var o policyv1alpha1.FederatedResourceQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil //nolint:nilerr // the schema says it better
		}
		problems = federatedquota.Validate(&o.Spec)
	}
	if len(problems) > 0 {
		list := field.ErrorList{}
		for _, err := range problems {
			list = append(list, field.Forbidden(field.NewPath("spec"), err.Error()))
		}
		return apierrors.NewInvalid(a.GetKind().GroupKind(), u.GetName(), list)
	}
	return p.mayEscalate(ctx, a, selectors)
}

// mayEscalate: who changes, in the members, what gives rights, judges requests
// or defines kinds, could give itself any right there.
func (p *policies) mayEscalate(ctx context.Context, a admission.Attributes, selectors []policyv1alpha1.ResourceSelector) error {
	for _, s := range selectors {
		gv, err := schema.ParseGroupVersion(s.APIVersion)
		if err != nil || !override.GuardedGroup(gv.Group) {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(gv.WithKind(s.Kind))
		err = p.require(ctx, a, authorizer.AttributesRecord{
			Verb: "escalate", Namespace: a.GetNamespace(), APIGroup: gv.Group, APIVersion: gv.Version, Resource: resource.Resource,
		}, "may it escalate", fmt.Sprintf("overriding %s needs the verb escalate on %s", s.Kind, strings.TrimSuffix(resource.Resource+"."+gv.Group, ".")))
		if err != nil {
			return err
		}
	}
	return nil
}
