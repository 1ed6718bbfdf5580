package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement says which clusters may be used and how replicas are spread.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.clusterAffinity) && has(self.clusterAffinities) && size(self.clusterAffinities) > 0)",message="spec.placement: use either clusterAffinity or clusterAffinities"
type Placement struct {
	// ClusterAffinity restricts the clusters.
	//
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`

	// ClusterAffinities are groups of clusters in order: the first in which
	// the template can be placed is used, and left only when it no longer
	// can.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=affinityName
	// +optional
	ClusterAffinities []ClusterAffinityTerm `json:"clusterAffinities,omitempty"`

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

	// WorkloadAffinity places workloads of a namespace with each other or
	// apart.
	//
	// +optional
	WorkloadAffinity *WorkloadAffinity `json:"workloadAffinity,omitempty"`
}

// WorkloadAffinity groups the workloads of a namespace by the value of one of
// their labels. A workload without the label is in no group. What has been
// placed stays.
type WorkloadAffinity struct {
	// Affinity keeps a group together: the first is placed freely, the others
	// only where there is one of the group.
	//
	// +optional
	Affinity *WorkloadGroup `json:"affinity,omitempty"`

	// AntiAffinity keeps a group apart: none goes where another is.
	//
	// +optional
	AntiAffinity *WorkloadGroup `json:"antiAffinity,omitempty"`
}

// WorkloadGroup is a group of workloads.
type WorkloadGroup struct {
	// GroupByLabelKey is the key of the label whose value names the group.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	GroupByLabelKey string `json:"groupByLabelKey"`
}

// ClusterAffinityTerm is a named group of clusters.
type ClusterAffinityTerm struct {
	// AffinityName names the group.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	AffinityName string `json:"affinityName"`

	ClusterAffinity `json:",inline"`

	// OverflowAffinities are filled in order with what those before have no
	// room for, and emptied in reverse.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	OverflowAffinities []OverflowClusterAffinity `json:"overflowAffinities,omitempty"`
}

// OverflowClusterAffinity is a named tier of clusters. A cluster belongs to the
// first tier that selects it.
type OverflowClusterAffinity struct {
	// AffinityName names the tier.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	AffinityName string `json:"affinityName"`

	ClusterAffinity `json:",inline"`
}

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
// +kubebuilder:validation:XValidation:rule="(has(self.spreadByLabel) && size(self.spreadByLabel) > 0) != (has(self.spreadByField) && size(self.spreadByField) > 0)",message="spreadConstraints: set exactly one of spreadByField (cluster, region, zone, provider) and spreadByLabel"
// +kubebuilder:validation:XValidation:rule="!has(self.maxGroups) || self.maxGroups == 0 || !has(self.minGroups) || self.minGroups <= self.maxGroups",message="spreadConstraints: minGroups is more than maxGroups"
type SpreadConstraint struct {
	// SpreadByField is the field of the clusters that makes the groups.
	//
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	// +optional
	SpreadByField string `json:"spreadByField,omitempty"`

	// SpreadByLabel is the key of a label of the clusters whose value makes
	// the groups.
	//
	// +kubebuilder:validation:MaxLength=317
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

// ReplicaDivisionPreference is Weighted or Aggregated.
type ReplicaDivisionPreference string

// Replica division preferences.
const (
	DivisionWeighted   ReplicaDivisionPreference = "Weighted"
	DivisionAggregated ReplicaDivisionPreference = "Aggregated"
)

// ReplicaSchedulingStrategy says how replicas are spread.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicaDivisionPreference) && self.replicaDivisionPreference == 'Aggregated' && has(self.weightPreference))",message="replicaScheduling: weightPreference is for replicaDivisionPreference Weighted, leave it out"
type ReplicaSchedulingStrategy struct {
	// ReplicaSchedulingType is Duplicated (every cluster gets all replicas)
	// or Divided.
	//
	// +kubebuilder:default=Divided
	// +kubebuilder:validation:Enum=Duplicated;Divided
	// +optional
	ReplicaSchedulingType ReplicaSchedulingType `json:"replicaSchedulingType,omitempty"`

	// ReplicaDivisionPreference is Weighted (by weightPreference) or
	// Aggregated (in as few clusters as have room).
	//
	// +kubebuilder:default=Weighted
	// +kubebuilder:validation:Enum=Weighted;Aggregated
	// +optional
	ReplicaDivisionPreference ReplicaDivisionPreference `json:"replicaDivisionPreference,omitempty"`

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
