package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterTaintPolicy taints Clusters by their conditions. Deleting it removes
// no taint.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustertaintpolicies,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterTaintPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterTaintPolicySpec `json:"spec"`
}

// ClusterTaintPolicyList is a list of ClusterTaintPolicies.
//
// +kubebuilder:object:root=true
type ClusterTaintPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterTaintPolicy `json:"items"`
}

// ClusterTaintPolicySpec says when which Clusters are tainted.
type ClusterTaintPolicySpec struct {
	// TargetClusters selects the Clusters; nil means all. One that is no
	// longer selected keeps its taints.
	//
	// +optional
	TargetClusters *ClusterAffinity `json:"targetClusters,omitempty"`

	// AddOnConditions must all hold for the taints to be added; none adds
	// nothing.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	AddOnConditions []MatchCondition `json:"addOnConditions,omitempty"`

	// RemoveOnConditions must all hold for the taints to be removed, and are
	// looked at after AddOnConditions; none removes nothing.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	RemoveOnConditions []MatchCondition `json:"removeOnConditions,omitempty"`

	// Taints that are added and removed.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Taints []Taint `json:"taints"`
}

// MatchCondition compares the status of a condition of a Cluster. A condition
// that is not there has the status Unknown.
type MatchCondition struct {
	// ConditionType is the type of the condition.
	//
	// +kubebuilder:validation:MinLength=1
	ConditionType string `json:"conditionType"`

	// Operator is In or NotIn.
	//
	// +kubebuilder:validation:Enum=In;NotIn
	Operator string `json:"operator"`

	// StatusValues are True, False and Unknown.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	StatusValues []metav1.ConditionStatus `json:"statusValues"`
}

// Taint is a taint of Clusters.
type Taint struct {
	// Key of the taint.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Effect is NoSchedule, PreferNoExecute or NoExecute.
	//
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoExecute;NoExecute
	Effect corev1.TaintEffect `json:"effect"`

	// Value of the taint.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Value string `json:"value,omitempty"`
}

// TaintEffectPreferNoExecute keeps new replicas away, and lets those that are
// there leave where the policy has failover.cluster.
const TaintEffectPreferNoExecute corev1.TaintEffect = "PreferNoExecute"
