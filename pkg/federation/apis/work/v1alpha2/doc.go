// Package v1alpha2 holds the bindings: where a template runs, with how many
// replicas. Wire-compatible with work.karmada.io/v1alpha2. Bindings are written
// by the engine.
//
// +kubebuilder:object:generate=true
// +groupName=work.karmada.io
package v1alpha2
