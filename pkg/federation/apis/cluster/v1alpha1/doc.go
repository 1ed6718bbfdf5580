// Package v1alpha1 holds the types of the API group cluster.karmada.io: the
// Cluster, one member that is reached through the endpoint. The wire form is
// that of Karmada, so that files written for it are accepted unedited; a field
// that this product does not honour is refused by name (see the validation
// rules on the types), never ignored.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:object:generate=true
// +groupName=cluster.karmada.io
package v1alpha1
