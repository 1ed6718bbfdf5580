package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of these kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "policy.karmada.io", Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion,
		&PropagationPolicy{}, &PropagationPolicyList{},
		&ClusterPropagationPolicy{}, &ClusterPropagationPolicyList{},
		&OverridePolicy{}, &OverridePolicyList{},
		&ClusterOverridePolicy{}, &ClusterOverridePolicyList{},
		&ClusterTaintPolicy{}, &ClusterTaintPolicyList{},
		&FederatedResourceQuota{}, &FederatedResourceQuotaList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
