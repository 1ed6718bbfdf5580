// Package v1alpha1 holds the kind that explains other kinds to the engine,
// wire-compatible with config.karmada.io/v1alpha1.
//
// +kubebuilder:object:generate=true
// +groupName=config.karmada.io
package v1alpha1
