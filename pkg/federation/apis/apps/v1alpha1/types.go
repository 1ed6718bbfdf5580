package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadRebalancer has workloads placed as if for the first time.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=workloadrebalancers,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finishTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkloadRebalancer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WorkloadRebalancerSpec   `json:"spec"`
	Status WorkloadRebalancerStatus `json:"status,omitempty"`
}

// WorkloadRebalancerList is a list of WorkloadRebalancers.
//
// +kubebuilder:object:root=true
type WorkloadRebalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadRebalancer `json:"items"`
}

// WorkloadRebalancerSpec names the workloads.
type WorkloadRebalancerSpec struct {
	// Workloads that are placed anew. One that is added later is placed anew
	// too.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	Workloads []ObjectReference `json:"workloads"`

	// TTLSecondsAfterFinished is how long the object stays when all is done;
	// without it, until somebody deletes it.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// ObjectReference names a workload.
type ObjectReference struct {
	// APIVersion of the workload.
	//
	// +kubebuilder:validation:MinLength=1
	APIVersion string `json:"apiVersion"`
	// Kind of the workload.
	//
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
	// Name of the workload.
	//
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the workload.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// WorkloadRebalancerStatus says what has been asked for.
type WorkloadRebalancerStatus struct {
	// ObservedGeneration is the generation that the rest is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ObservedWorkloads are the workloads with their results.
	//
	// +optional
	ObservedWorkloads []ObservedWorkload `json:"observedWorkloads,omitempty"`

	// FinishTime is when the last workload had a result.
	//
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
}

// ObservedWorkload is a workload with its result.
type ObservedWorkload struct {
	// Workload that was to be placed anew.
	Workload ObjectReference `json:"workload"`
	// Result is Successful or Failed.
	//
	// +optional
	Result RebalanceResult `json:"result,omitempty"`
	// Reason of a failure.
	//
	// +optional
	Reason RebalanceFailedReason `json:"reason,omitempty"`
}

// RebalanceResult is Successful or Failed.
type RebalanceResult string

// Results.
const (
	RebalanceSuccessful RebalanceResult = "Successful"
	RebalanceFailed     RebalanceResult = "Failed"
)

// RebalanceFailedReason is why a workload was not placed anew.
type RebalanceFailedReason string

// RebalanceObjectNotFound says that the workload has no binding.
const RebalanceObjectNotFound RebalanceFailedReason = "ReferencedBindingNotFound"
