package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FederatedResourceQuota limits a namespace over all clusters together, and in
// single ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=federatedresourcequotas,scope=Namespaced,categories={karmada-io}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FederatedResourceQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FederatedResourceQuotaSpec   `json:"spec"`
	Status FederatedResourceQuotaStatus `json:"status,omitempty"`
}

// FederatedResourceQuotaList is a list of FederatedResourceQuotas.
//
// +kubebuilder:object:root=true
type FederatedResourceQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FederatedResourceQuota `json:"items"`
}

// FederatedResourceQuotaSpec are the limits.
type FederatedResourceQuotaSpec struct {
	// Overall are the limits of all clusters together.
	Overall corev1.ResourceList `json:"overall"`

	// StaticAssignments are the limits in single clusters. What they leave of
	// the overall limits is divided over the other clusters.
	//
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=clusterName
	// +optional
	StaticAssignments []StaticClusterAssignment `json:"staticAssignments,omitempty"`
}

// StaticClusterAssignment are the limits in one cluster.
type StaticClusterAssignment struct {
	// ClusterName is the name of the cluster.
	//
	// +kubebuilder:validation:MinLength=1
	ClusterName string `json:"clusterName"`

	// Hard are the limits.
	Hard corev1.ResourceList `json:"hard"`
}

// FederatedResourceQuotaStatus are the limits in force and what is used.
type FederatedResourceQuotaStatus struct {
	// Overall are the limits in force.
	//
	// +optional
	Overall corev1.ResourceList `json:"overall,omitempty"`

	// OverallUsed is what is used in all clusters together.
	//
	// +optional
	OverallUsed corev1.ResourceList `json:"overallUsed,omitempty"`

	// AggregatedStatus is the state in each cluster that has limits of its own.
	//
	// +optional
	AggregatedStatus []ClusterQuotaStatus `json:"aggregatedStatus,omitempty"`
}

// ClusterQuotaStatus is the state in one cluster.
type ClusterQuotaStatus struct {
	// ClusterName is the name of the cluster.
	ClusterName string `json:"clusterName"`

	corev1.ResourceQuotaStatus `json:",inline"`
}
