package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// Condition types of a binding.
const (
	// ConditionScheduled says whether targets were found.
	ConditionScheduled = "Scheduled"
	// ConditionFullyApplied says whether every target holds the present state.
	ConditionFullyApplied = "FullyApplied"
	// ConditionHeld says which copies are on hold (isthmus.dev/hold), and what
	// differs because of that. It is absent when none is.
	ConditionHeld = "Held"
	// ConditionInterpreted is False when a customization fails, and says how. It
	// is absent when none does.
	ConditionInterpreted = "Interpreted"
)

// ResourceBinding holds the targets of a namespaced template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=resourcebindings,scope=Namespaced,shortName=rb,categories={karmada-io}
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].status`
// +kubebuilder:printcolumn:name="FullyApplied",type=string,JSONPath=`.status.conditions[?(@.type=="FullyApplied")].status`
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.conditions[?(@.type=="Held")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceBindingSpec   `json:"spec"`
	Status ResourceBindingStatus `json:"status,omitempty"`
}

// ResourceBindingList is a list of ResourceBindings.
//
// +kubebuilder:object:root=true
type ResourceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceBinding `json:"items"`
}

// ClusterResourceBinding holds the targets of a cluster-scoped template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterresourcebindings,scope=Cluster,shortName=crb,categories={karmada-io}
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].status`
// +kubebuilder:printcolumn:name="FullyApplied",type=string,JSONPath=`.status.conditions[?(@.type=="FullyApplied")].status`
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.conditions[?(@.type=="Held")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterResourceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceBindingSpec   `json:"spec"`
	Status ResourceBindingStatus `json:"status,omitempty"`
}

// ClusterResourceBindingList is a list of ClusterResourceBindings.
//
// +kubebuilder:object:root=true
type ClusterResourceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterResourceBinding `json:"items"`
}

// ResourceBindingSpec is the decision about one template.
type ResourceBindingSpec struct {
	// Resource is the template.
	Resource ObjectReference `json:"resource"`

	// PropagateDeps lets dependencies follow.
	//
	// +optional
	PropagateDeps bool `json:"propagateDeps,omitempty"`

	// Replicas of the template.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Clusters are the targets.
	//
	// +optional
	Clusters []TargetCluster `json:"clusters,omitempty"`

	// RequiredBy are the bindings of workloads that need this template.
	//
	// +optional
	RequiredBy []BindingSnapshot `json:"requiredBy,omitempty"`

	// SchedulerName of the policy.
	//
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Placement of the policy that made the decision.
	//
	// +optional
	Placement *policyv1alpha1.Placement `json:"placement,omitempty"`

	// RescheduleTriggeredAt asks for a fresh decision when it is later than
	// status.lastScheduledTime.
	//
	// +optional
	RescheduleTriggeredAt *metav1.Time `json:"rescheduleTriggeredAt,omitempty"`

	// ConflictResolution of the policy.
	//
	// +kubebuilder:validation:Enum=Abort;Overwrite
	// +optional
	ConflictResolution policyv1alpha1.ConflictResolution `json:"conflictResolution,omitempty"`

	// Suspension of the policy, and of decisions.
	//
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// Failover of the policy.
	//
	// +optional
	Failover *policyv1alpha1.FailoverBehavior `json:"failover,omitempty"`

	// GracefulEvictionTasks are the copies that failover leaves behind, from the
	// decision until they are gone.
	//
	// +optional
	GracefulEvictionTasks []GracefulEvictionTask `json:"gracefulEvictionTasks,omitempty"`

	// SchedulePriority is the priority that the policy gives.
	//
	// +optional
	SchedulePriority *SchedulePriority `json:"schedulePriority,omitempty"`

	// WorkloadAffinityGroups are the groups that the template is in.
	//
	// +optional
	WorkloadAffinityGroups *WorkloadAffinityGroups `json:"workloadAffinityGroups,omitempty"`

	// PreserveResourcesOnDeletion of the policy.
	//
	// +optional
	PreserveResourcesOnDeletion *bool `json:"preserveResourcesOnDeletion,omitempty"`
}

// GracefulEvictionTask is the record that a copy leaves a cluster.
type GracefulEvictionTask struct {
	// FromCluster is the cluster that is left.
	FromCluster string `json:"fromCluster"`

	// PurgeMode says what becomes of the copy there.
	//
	// +optional
	PurgeMode policyv1alpha1.PurgeMode `json:"purgeMode,omitempty"`

	// Replicas that were decided for the cluster.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Reason in one word.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says it in words.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Producer is who has decided.
	//
	// +optional
	Producer string `json:"producer,omitempty"`

	// GracePeriodSeconds is how long the copy is kept whole while the new ones
	// are not healthy.
	//
	// +optional
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`

	// SuppressDeletion keeps the copy until it is false.
	//
	// +optional
	SuppressDeletion *bool `json:"suppressDeletion,omitempty"`

	// PreservedLabelState are labels for the new copies.
	//
	// +optional
	PreservedLabelState map[string]string `json:"preservedLabelState,omitempty"`

	// CreationTimestamp is when it was decided.
	//
	// +optional
	CreationTimestamp *metav1.Time `json:"creationTimestamp,omitempty"`

	// ClustersBeforeFailover had a copy already and are told nothing.
	//
	// +optional
	ClustersBeforeFailover []string `json:"clustersBeforeFailover,omitempty"`
}

// Suspension stops writes to members, and decisions.
type Suspension struct {
	policyv1alpha1.Suspension `json:",inline"`

	// Scheduling is set by others than the policy: while it is true, the
	// targets stay as they are.
	//
	// +optional
	Scheduling *bool `json:"scheduling,omitempty"`
}

// SchedulePriority is a resolved priority.
type SchedulePriority struct {
	// Priority is the value of the PriorityClass.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// WorkloadAffinityGroups are named LABEL=VALUE.
type WorkloadAffinityGroups struct {
	// AffinityGroup is placed together.
	//
	// +optional
	AffinityGroup string `json:"affinityGroup,omitempty"`

	// AntiAffinityGroup is placed apart.
	//
	// +optional
	AntiAffinityGroup string `json:"antiAffinityGroup,omitempty"`
}

// ObjectReference names a template.
type ObjectReference struct {
	// APIVersion of the template.
	APIVersion string `json:"apiVersion"`
	// Kind of the template.
	Kind string `json:"kind"`
	// Namespace of the template.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the template.
	Name string `json:"name"`
	// UID of the template.
	//
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// ResourceVersion of the template when the binding was made.
	//
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// TargetCluster is one target.
type TargetCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Replicas in the cluster.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
}

// BindingSnapshot is the placement of a workload that needs the template.
type BindingSnapshot struct {
	// Namespace of the binding.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the binding.
	Name string `json:"name"`
	// Clusters of the binding.
	//
	// +optional
	Clusters []TargetCluster `json:"clusters,omitempty"`
}

// ResourceBindingStatus is what became of the decision.
type ResourceBindingStatus struct {
	// SchedulerObservedGeneration is the generation of the binding that the
	// decision was made for.
	//
	// +optional
	SchedulerObservedGeneration int64 `json:"schedulerObservedGeneration,omitempty"`

	// SchedulerObservedAffinityName is the affinity group in use.
	//
	// +optional
	SchedulerObservedAffinityName string `json:"schedulerObservingAffinityName,omitempty"`

	// LastScheduledTime is when the targets were decided last.
	//
	// +optional
	LastScheduledTime *metav1.Time `json:"lastScheduledTime,omitempty"`

	// Conditions Scheduled, FullyApplied and Held.
	//
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// AggregatedStatus is the state of each copy.
	//
	// +optional
	AggregatedStatus []AggregatedStatusItem `json:"aggregatedStatus,omitempty"`
}

// AggregatedStatusItem is the state of one copy.
type AggregatedStatusItem struct {
	// ClusterName of the copy.
	ClusterName string `json:"clusterName"`

	// Status of the copy.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Status *runtime.RawExtension `json:"status,omitempty"`

	// Applied says whether the copy holds the present state.
	//
	// +optional
	Applied bool `json:"applied,omitempty"`

	// AppliedMessage says why not.
	//
	// +optional
	AppliedMessage string `json:"appliedMessage,omitempty"`

	// Health of the copy.
	//
	// +kubebuilder:validation:Enum=Healthy;Unhealthy;Unknown
	// +optional
	Health string `json:"health,omitempty"`
}
