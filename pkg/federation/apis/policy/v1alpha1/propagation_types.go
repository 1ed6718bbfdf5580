package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
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

// Opaque stands for the content of a field that is refused by validation.
type Opaque struct{}

// PropagationSpec is the desired propagation of the selected templates.
//
// +kubebuilder:validation:XValidation:rule="!has(self.association)",message="spec.association is not supported: set spec.propagateDeps instead"
// +kubebuilder:validation:XValidation:rule="!has(self.failover)",message="spec.failover is not supported yet: leave it out, an unreachable cluster keeps its replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.schedulePriority)",message="spec.schedulePriority is not supported yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.dependentOverrides) || size(self.dependentOverrides) == 0",message="spec.dependentOverrides is not supported yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.schedulerName) || size(self.schedulerName) == 0 || self.schedulerName == 'default-scheduler'",message="spec.schedulerName: only default-scheduler is supported"
// +kubebuilder:validation:XValidation:rule="!has(self.activationPreference) || size(self.activationPreference) == 0",message="spec.activationPreference Lazy is not supported yet: leave it out"
type PropagationSpec struct {
	// ResourceSelectors names the templates. A template matches the policy
	// when any of them matches.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// Association is refused.
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

	// DependentOverrides is refused.
	//
	// +optional
	DependentOverrides []string `json:"dependentOverrides,omitempty"`

	// SchedulerName accepts the default only.
	//
	// +kubebuilder:default=default-scheduler
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Failover is refused.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Failover *Opaque `json:"failover,omitempty"`

	// ConflictResolution says what happens to an object of the same name that
	// a member already has and that is not managed: Abort leaves it alone,
	// Overwrite takes it over.
	//
	// +kubebuilder:default=Abort
	// +kubebuilder:validation:Enum=Abort;Overwrite
	// +optional
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`

	// ActivationPreference is refused.
	//
	// +optional
	ActivationPreference string `json:"activationPreference,omitempty"`

	// Suspension stops writes to members.
	//
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// PreserveResourcesOnDeletion leaves the copies in the members, without
	// our marks, when the template is deleted.
	//
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`

	// SchedulePriority is refused.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	SchedulePriority *Opaque `json:"schedulePriority,omitempty"`
}

// PreemptionBehavior is Always or Never.
type PreemptionBehavior string

// Preemption behaviours.
const (
	PreemptAlways PreemptionBehavior = "Always"
	PreemptNever  PreemptionBehavior = "Never"
)

// ConflictResolution is Abort or Overwrite.
type ConflictResolution string

// Conflict resolutions.
const (
	ConflictAbort     ConflictResolution = "Abort"
	ConflictOverwrite ConflictResolution = "Overwrite"
)

// Suspension stops writes to members; status is still collected.
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

// Placement says which clusters may be used and how replicas are spread.
//
// +kubebuilder:validation:XValidation:rule="!has(self.clusterAffinities) || size(self.clusterAffinities) == 0",message="spec.placement.clusterAffinities is not supported yet: use clusterAffinity"
// +kubebuilder:validation:XValidation:rule="!has(self.workloadAffinity)",message="spec.placement.workloadAffinity is not supported yet: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.spreadConstraints) || size(self.spreadConstraints) <= 1",message="spec.placement.spreadConstraints: only one constraint, by cluster, is supported yet"
type Placement struct {
	// ClusterAffinity restricts the clusters.
	//
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`

	// ClusterAffinities is refused.
	//
	// +optional
	ClusterAffinities []OpaqueItem `json:"clusterAffinities,omitempty"`

	// ClusterTolerations are the taints of clusters that are tolerated.
	//
	// +optional
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations,omitempty"`

	// SpreadConstraints limits the number of clusters.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	SpreadConstraints []SpreadConstraint `json:"spreadConstraints,omitempty"`

	// ReplicaScheduling says how replicas are spread; without it every
	// cluster gets the template's replicas.
	//
	// +optional
	ReplicaScheduling *ReplicaSchedulingStrategy `json:"replicaScheduling,omitempty"`

	// WorkloadAffinity is refused.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	WorkloadAffinity *Opaque `json:"workloadAffinity,omitempty"`
}

// OpaqueItem is an item of a list that is refused by validation.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OpaqueItem struct{}

// ClusterAffinity selects clusters; all its parts must match.
type ClusterAffinity struct {
	// LabelSelector over the clusters' labels.
	//
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// FieldSelector over provider, region and zone.
	//
	// +optional
	FieldSelector *FieldSelector `json:"fieldSelector,omitempty"`

	// ClusterNames that may be used; empty means all.
	//
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`

	// ExcludeClusters that may not be used.
	//
	// +optional
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// FieldSelector selects clusters by provider, region and zone.
type FieldSelector struct {
	// MatchExpressions must all hold.
	//
	// +kubebuilder:validation:MaxItems=32
	// +optional
	MatchExpressions []FieldRequirement `json:"matchExpressions,omitempty"`
}

// FieldRequirement is one expression of a FieldSelector.
type FieldRequirement struct {
	// Key is provider, region or zone.
	//
	// +kubebuilder:validation:Enum=provider;region;zone
	Key string `json:"key"`
	// Operator is In or NotIn.
	//
	// +kubebuilder:validation:Enum=In;NotIn
	Operator string `json:"operator"`
	// Values to compare with.
	//
	// +optional
	Values []string `json:"values,omitempty"`
}

// SpreadConstraint limits the number of groups of clusters.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spreadByLabel) || size(self.spreadByLabel) == 0",message="spreadConstraints.spreadByLabel is not supported yet: use spreadByField: cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.spreadByField) || size(self.spreadByField) == 0 || self.spreadByField == 'cluster'",message="spreadConstraints.spreadByField: only cluster is supported yet"
type SpreadConstraint struct {
	// SpreadByField is the field of the clusters that makes the groups.
	//
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	// +optional
	SpreadByField string `json:"spreadByField,omitempty"`

	// SpreadByLabel is refused.
	//
	// +optional
	SpreadByLabel string `json:"spreadByLabel,omitempty"`

	// MaxGroups is the largest number of groups; 0 means no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxGroups int `json:"maxGroups,omitempty"`

	// MinGroups is the smallest number of groups.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinGroups int `json:"minGroups,omitempty"`
}

// ReplicaSchedulingType is Duplicated or Divided.
type ReplicaSchedulingType string

// Replica scheduling types.
const (
	ReplicasDuplicated ReplicaSchedulingType = "Duplicated"
	ReplicasDivided    ReplicaSchedulingType = "Divided"
)

// ReplicaSchedulingStrategy says how replicas are spread.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicaDivisionPreference) || self.replicaDivisionPreference != 'Aggregated'",message="replicaScheduling.replicaDivisionPreference Aggregated is not supported yet: use Weighted, or spreadConstraints by cluster with maxGroups"
type ReplicaSchedulingStrategy struct {
	// ReplicaSchedulingType is Duplicated (every cluster gets all replicas)
	// or Divided.
	//
	// +kubebuilder:default=Divided
	// +kubebuilder:validation:Enum=Duplicated;Divided
	// +optional
	ReplicaSchedulingType ReplicaSchedulingType `json:"replicaSchedulingType,omitempty"`

	// ReplicaDivisionPreference says how replicas are divided.
	//
	// +kubebuilder:default=Weighted
	// +kubebuilder:validation:Enum=Weighted;Aggregated
	// +optional
	ReplicaDivisionPreference string `json:"replicaDivisionPreference,omitempty"`

	// WeightPreference gives the weights; without it all clusters are equal.
	//
	// +optional
	WeightPreference *ClusterPreferences `json:"weightPreference,omitempty"`
}

// ClusterPreferences gives the weights of clusters.
type ClusterPreferences struct {
	// StaticWeightList gives fixed weights. A cluster's weight is the largest
	// of the rules that match it; a cluster that none matches is not used.
	//
	// +optional
	StaticWeightList []StaticClusterWeight `json:"staticWeightList,omitempty"`

	// DynamicWeight takes the weights from what the clusters can hold.
	//
	// +kubebuilder:validation:Enum=AvailableReplicas
	// +optional
	DynamicWeight string `json:"dynamicWeight,omitempty"`
}

// DynamicWeightAvailableReplicas weighs clusters by the replicas they can hold.
const DynamicWeightAvailableReplicas = "AvailableReplicas"

// StaticClusterWeight is the weight of the clusters that match.
type StaticClusterWeight struct {
	// TargetCluster selects the clusters.
	TargetCluster ClusterAffinity `json:"targetCluster"`

	// Weight is at least 1.
	//
	// +kubebuilder:validation:Minimum=1
	Weight int64 `json:"weight"`
}
