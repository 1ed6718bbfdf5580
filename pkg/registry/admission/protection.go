package admission

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
)

// DeletionProtectionPlugin refuses to delete what says that it must stay.
const DeletionProtectionPlugin = "IsthmusDeletionProtection"

// The label that protects an object, and its value.
const (
	ProtectedLabel = "resourcetemplate.karmada.io/deletion-protected"
	ProtectedValue = "Always"
)

// RegisterDeletionProtection adds the plugin to a set of plugins.
func RegisterDeletionProtection(plugins *admission.Plugins) {
	plugins.Register(DeletionProtectionPlugin, func(io.Reader) (admission.Interface, error) {
		return deletionProtection{admission.NewHandler(admission.Delete)}, nil
	})
}

type deletionProtection struct{ *admission.Handler }

var _ admission.ValidationInterface = deletionProtection{}

// Validate implements admission.ValidationInterface.
func (deletionProtection) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetOldObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil //nolint:nilerr // an object without metadata has no label
	}
	if obj.GetLabels()[ProtectedLabel] != ProtectedValue {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("it is protected from deletion: remove the label %s first", ProtectedLabel))
}
