package v1alpha1

// FailoverBehavior lets replicas leave clusters that have failed, and clusters
// in which the application has.
type FailoverBehavior struct {
	// Cluster is about clusters that cannot be reached or are tainted
	// NoExecute or PreferNoExecute.
	//
	// +optional
	Cluster *ClusterFailoverBehavior `json:"cluster,omitempty"`

	// Application is about copies that are unhealthy in a cluster that can be
	// reached.
	//
	// +optional
	Application *ApplicationFailoverBehavior `json:"application,omitempty"`
}

// PurgeMode says what becomes of the copy that is left behind. Immediately and
// Graciously are former names of Directly and Gracefully.
//
// +kubebuilder:validation:Enum=Directly;Gracefully;Never;Immediately;Graciously
type PurgeMode string

// Purge modes.
const (
	// PurgeDirectly takes the old copy away at once.
	PurgeDirectly PurgeMode = "Directly"
	// PurgeGracefully takes it away when the new ones are healthy.
	PurgeGracefully PurgeMode = "Gracefully"
	// PurgeNever leaves it until somebody says otherwise.
	PurgeNever PurgeMode = "Never"
	// PurgeImmediately is Directly.
	PurgeImmediately PurgeMode = "Immediately"
	// PurgeGraciously is Gracefully.
	PurgeGraciously PurgeMode = "Graciously"
)

// ApplicationFailoverBehavior says when a copy leaves a cluster in which it is
// unhealthy.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || !has(self.purgeMode) || self.purgeMode == 'Gracefully' || self.purgeMode == 'Graciously'",message="spec.failover.application.gracePeriodSeconds goes only with purgeMode Gracefully"
type ApplicationFailoverBehavior struct {
	// DecisionConditions say when a copy has failed.
	//
	// +kubebuilder:default={}
	// +optional
	DecisionConditions DecisionConditions `json:"decisionConditions,omitempty"`

	// PurgeMode says what becomes of the copy that is left behind.
	//
	// +kubebuilder:default=Gracefully
	// +optional
	PurgeMode PurgeMode `json:"purgeMode,omitempty"`

	// GracePeriodSeconds is how long the old copy is kept whole while the new
	// ones are not healthy; 600 unless it is set. After that what it still has
	// ready goes as the others have as much.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// StatePreservation names values of the old copy's status that the new
	// copies are told in labels.
	//
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
}

// DecisionConditions say when a copy has failed.
type DecisionConditions struct {
	// TolerationSeconds is how long a copy may be unhealthy without a break.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +optional
	TolerationSeconds *int32 `json:"tolerationSeconds,omitempty"`
}

// StatePreservation is what a new copy is told of the old one.
type StatePreservation struct {
	// Rules name the values.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Rules []StatePreservationRule `json:"rules"`
}

// StatePreservationRule makes a value of the old copy's status a label of the new.
type StatePreservationRule struct {
	// AliasLabelName is the label.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	AliasLabelName string `json:"aliasLabelName"`

	// JSONPath of the value, as in kubectl, from the status on:
	// {.availableReplicas}.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	JSONPath string `json:"jsonPath"`
}

// ClusterFailoverBehavior says when replicas leave a cluster that has failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.purgeMode) || self.purgeMode != 'Never'",message="spec.failover.cluster.purgeMode: Never is of applications only; suspension keeps a cluster as it is"
type ClusterFailoverBehavior struct {
	// TolerationSeconds is how long a cluster may be out of reach, or tainted
	// PreferNoExecute, before its replicas are placed elsewhere. A taint
	// NoExecute has its tolerationSeconds in clusterTolerations.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +optional
	TolerationSeconds *int32 `json:"tolerationSeconds,omitempty"`

	// PurgeMode is Gracefully, where the old copy goes as the new ones are
	// available, or Directly, where it goes as soon as it can be reached.
	//
	// +kubebuilder:default=Gracefully
	// +optional
	PurgeMode PurgeMode `json:"purgeMode,omitempty"`

	// StatePreservation names values of the old copy's status that the new
	// copies are told in labels.
	//
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
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
