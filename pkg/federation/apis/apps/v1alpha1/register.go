package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of these kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "apps.karmada.io", Version: "v1alpha1"}
