package v1alpha1

// FailoverBehavior lets replicas leave clusters that have failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.application)",message="spec.failover.application is not supported: an application that fails in one cluster fails by its own doing, use spec.failover.cluster"
type FailoverBehavior struct {
	// Cluster is about clusters that cannot be reached or are tainted
	// NoExecute or PreferNoExecute.
	//
	// +optional
	Cluster *ClusterFailoverBehavior `json:"cluster,omitempty"`

	// Application is refused.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Application *Opaque `json:"application,omitempty"`
}

// Opaque stands for the content of a field that is refused by validation.
type Opaque struct{}

// ClusterFailoverBehavior says when replicas leave a cluster that has failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.statePreservation)",message="spec.failover.cluster.statePreservation is not supported: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.purgeMode) || self.purgeMode == 'Gracefully' || self.purgeMode == 'Graciously'",message="spec.failover.cluster.purgeMode: only Gracefully is supported, the old copy stays until the new ones are available"
type ClusterFailoverBehavior struct {
	// TolerationSeconds is how long a cluster may be out of reach, or tainted
	// PreferNoExecute, before its replicas are placed elsewhere. A taint
	// NoExecute has its tolerationSeconds in clusterTolerations.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +optional
	TolerationSeconds *int32 `json:"tolerationSeconds,omitempty"`

	// PurgeMode accepts Gracefully: the old copy goes when the new ones are
	// available.
	//
	// +kubebuilder:default=Gracefully
	// +kubebuilder:validation:MaxLength=32
	// +optional
	PurgeMode string `json:"purgeMode,omitempty"`

	// StatePreservation is refused.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	StatePreservation *Opaque `json:"statePreservation,omitempty"`
}

// SchedulePriority names the PriorityClass that gives the priority.
//
// +kubebuilder:validation:XValidation:rule="self.priorityClassSource != 'FederatedPriorityClass'",message="schedulePriority.priorityClassSource: there is no FederatedPriorityClass, use KubePriorityClass or PodPriorityClass"
// +kubebuilder:validation:XValidation:rule="self.priorityClassSource != 'KubePriorityClass' || has(self.priorityClassName) && size(self.priorityClassName) > 0",message="schedulePriority.priorityClassName: KubePriorityClass needs the name of a PriorityClass"
type SchedulePriority struct {
	// PriorityClassSource is KubePriorityClass (priorityClassName names it) or
	// PodPriorityClass (the pod template names it).
	//
	// +kubebuilder:default=KubePriorityClass
	// +kubebuilder:validation:Enum=KubePriorityClass;PodPriorityClass;FederatedPriorityClass
	// +optional
	PriorityClassSource PriorityClassSource `json:"priorityClassSource,omitempty"`

	// PriorityClassName is the name of the PriorityClass.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// PriorityClassSource says which object names the PriorityClass.
type PriorityClassSource string

// Sources of a priority class.
const (
	KubePriorityClass PriorityClassSource = "KubePriorityClass"
	PodPriorityClass  PriorityClassSource = "PodPriorityClass"
)
