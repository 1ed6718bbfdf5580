// Package v1alpha1 holds the policy kinds that decide where templates run and
// how their copies differ, wire-compatible with policy.karmada.io/v1alpha1.
//
// A field that the engine does not implement yet is part of the schema and is
// refused there by a validation rule that names it, so that no field is ever
// ignored in silence.
//
// +kubebuilder:object:generate=true
// +groupName=policy.karmada.io
package v1alpha1
