package admission

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"

	configv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/config/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
)

// CustomizationPlugin refuses ResourceInterpreterCustomizations whose scripts
// cannot be used, with line and reason.
const CustomizationPlugin = "IsthmusCustomization"

// RegisterCustomization adds the plugin to a set of plugins.
func RegisterCustomization(plugins *admission.Plugins) {
	plugins.Register(CustomizationPlugin, func(io.Reader) (admission.Interface, error) {
		return &customization{Handler: admission.NewHandler(admission.Create, admission.Update), validator: interpreter.NewValidator()}, nil
	})
}

type customization struct {
	*admission.Handler
	validator *interpreter.Validator
	client    dynamic.Interface
}

var (
	_ admission.ValidationInterface  = &customization{}
	_ initializer.WantsDynamicClient = &customization{}
)

var customizations = configv1alpha1.SchemeGroupVersion.WithResource("resourceinterpretercustomizations")

// SetDynamicClient implements initializer.WantsDynamicClient.
func (c *customization) SetDynamicClient(client dynamic.Interface) { c.client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (c *customization) ValidateInitialization() error {
	if c.client == nil {
		return errors.New(CustomizationPlugin + " needs a client")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (c *customization) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != customizations.GroupResource() || a.GetSubresource() != "" {
		return nil
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || u.GetDeletionTimestamp() != nil {
		return nil
	}
	object, err := customizationOf(u)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	list, err := c.client.Resource(customizations).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the customizations that there are: %w", err)
	}
	others := make([]*interpreter.Customization, 0, len(list.Items))
	for i := range list.Items {
		other, err := customizationOf(&list.Items[i])
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		others = append(others, other)
	}
	if errs := c.validator.Validate(ctx, object, others); len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	for _, text := range interpreter.Unasked(object) {
		warning.AddWarning(ctx, "", text)
	}
	return nil
}

func customizationOf(u *unstructured.Unstructured) (*interpreter.Customization, error) {
	out := &interpreter.Customization{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("ResourceInterpreterCustomization %s: %w", u.GetName(), err)
	}
	return out, nil
}
