package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PropagationPolicy says in which clusters the templates of its own namespace
// run.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=propagationpolicies,scope=Namespaced,shortName=pp,categories={karmada-io}
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PropagationSpec `json:"spec"`
}

// PropagationPolicyList is a list of PropagationPolicies.
//
// +kubebuilder:object:root=true
type PropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PropagationPolicy `json:"items"`
}

// ClusterPropagationPolicy says in which clusters templates of any namespace,
// or of no namespace, run.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterpropagationpolicies,scope=Cluster,shortName=cpp,categories={karmada-io}
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PropagationSpec `json:"spec"`
}

// ClusterPropagationPolicyList is a list of ClusterPropagationPolicies.
//
// +kubebuilder:object:root=true
type ClusterPropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPropagationPolicy `json:"items"`
}

// PropagationSpec is the desired propagation of the selected templates.
//
// +kubebuilder:validation:XValidation:rule="!has(self.association) || !self.association",message="spec.association is not supported: set spec.propagateDeps instead"
// +kubebuilder:validation:XValidation:rule="!has(self.schedulerName) || size(self.schedulerName) == 0 || self.schedulerName == 'default-scheduler'",message="spec.schedulerName: only default-scheduler is supported"
type PropagationSpec struct {
	// ResourceSelectors names the templates. A template matches the policy
	// when any of them matches.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// Association is refused when it is true.
	//
	// +optional
	Association *bool `json:"association,omitempty"`

	// PropagateDeps lets the ConfigMaps, Secrets, ServiceAccounts and
	// PersistentVolumeClaims of a pod template follow the workload.
	//
	// +optional
	PropagateDeps bool `json:"propagateDeps,omitempty"`

	// Placement says where.
	//
	// +optional
	Placement Placement `json:"placement,omitempty"`

	// Priority decides between policies that match the same template; higher
	// wins.
	//
	// +kubebuilder:default=0
	// +optional
	Priority *int32 `json:"priority,omitempty"`

	// Preemption Always lets this policy take a template from another policy
	// of lower rank that has claimed it already.
	//
	// +kubebuilder:default=Never
	// +kubebuilder:validation:Enum=Always;Never
	// +optional
	Preemption PreemptionBehavior `json:"preemption,omitempty"`

	// DependentOverrides names the OverridePolicies of the templates'
	// namespace, or the ClusterOverridePolicies, without which this policy
	// places nothing.
	//
	// +kubebuilder:validation:MaxItems=64
	// +optional
	DependentOverrides []string `json:"dependentOverrides,omitempty"`

	// SchedulerName accepts the default only.
	//
	// +kubebuilder:default=default-scheduler
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Failover lets replicas leave a cluster that has failed. Without it a
	// cluster keeps what it has.
	//
	// +optional
	Failover *FailoverBehavior `json:"failover,omitempty"`

	// ConflictResolution says what happens to an object of the same name that
	// a member already has and that is not managed: Abort leaves it alone,
	// Overwrite takes it over.
	//
	// +kubebuilder:default=Abort
	// +kubebuilder:validation:Enum=Abort;Overwrite
	// +optional
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`

	// ActivationPreference Lazy lets a change of the policy wait until the
	// template itself changes.
	//
	// +kubebuilder:validation:Enum=Lazy
	// +optional
	ActivationPreference ActivationPreference `json:"activationPreference,omitempty"`

	// Suspension stops writes to members.
	//
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// PreserveResourcesOnDeletion leaves the copies in the members, without
	// our marks, when the template is deleted.
	//
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`

	// SchedulePriority is written to the binding. Decisions wait for nothing
	// but capacity, each on its own, so it puts none before another.
	//
	// +optional
	SchedulePriority *SchedulePriority `json:"schedulePriority,omitempty"`
}

// PreemptionBehavior is Always or Never.
type PreemptionBehavior string

// Preemption behaviours.
const (
	PreemptAlways PreemptionBehavior = "Always"
	PreemptNever  PreemptionBehavior = "Never"
)

// ActivationPreference is Lazy or empty.
type ActivationPreference string

// LazyActivation lets a change of the policy wait for one of the template.
const LazyActivation ActivationPreference = "Lazy"

// ConflictResolution is Abort or Overwrite.
type ConflictResolution string

// Conflict resolutions.
const (
	ConflictAbort     ConflictResolution = "Abort"
	ConflictOverwrite ConflictResolution = "Overwrite"
)

// Suspension stops writes to members; status is still collected.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.dispatching) && self.dispatching && has(self.dispatchingOnClusters))",message="suspension: dispatching stops the writes to all clusters, leave dispatchingOnClusters out"
type Suspension struct {
	// Dispatching stops the writes to all members.
	//
	// +optional
	Dispatching *bool `json:"dispatching,omitempty"`

	// DispatchingOnClusters stops the writes to some members.
	//
	// +optional
	DispatchingOnClusters *SuspendClusters `json:"dispatchingOnClusters,omitempty"`
}

// SuspendClusters names clusters.
type SuspendClusters struct {
	// ClusterNames of the members that are not written to.
	//
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`
}

// ResourceSelector selects templates.
type ResourceSelector struct {
	// APIVersion of the templates.
	//
	// +kubebuilder:validation:MinLength=1
	APIVersion string `json:"apiVersion"`

	// Kind of the templates.
	//
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`

	// Namespace of the templates. Empty means the policy's own namespace, and
	// every namespace in a cluster-scoped policy.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the template. Takes precedence over LabelSelector.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// LabelSelector over the templates' labels.
	//
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}
