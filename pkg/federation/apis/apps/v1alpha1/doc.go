// Package v1alpha1 holds the kinds of apps.karmada.io/v1alpha1:
// WorkloadRebalancer. Types only.
//
// +kubebuilder:object:generate=true
// +groupName=apps.karmada.io
package v1alpha1
