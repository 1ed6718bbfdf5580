package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy says how copies of the templates of its namespace differ
// from cluster to cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=overridepolicies,scope=Namespaced,shortName=op,categories={karmada-io}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OverrideSpec `json:"spec"`
}

// OverridePolicyList is a list of OverridePolicies.
//
// +kubebuilder:object:root=true
type OverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OverridePolicy `json:"items"`
}

// ClusterOverridePolicy says how copies of any template differ from cluster to
// cluster. It is applied before the OverridePolicies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusteroverridepolicies,scope=Cluster,shortName=cop,categories={karmada-io}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterOverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OverrideSpec `json:"spec"`
}

// ClusterOverridePolicyList is a list of ClusterOverridePolicies.
//
// +kubebuilder:object:root=true
type ClusterOverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterOverridePolicy `json:"items"`
}

// OverrideSpec is what is changed, for which templates and clusters.
type OverrideSpec struct {
	// ResourceSelectors names the templates; empty means all that the policy
	// can see.
	//
	// +kubebuilder:validation:MaxItems=512
	// +optional
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`

	// OverrideRules are applied in order.
	//
	// +kubebuilder:validation:MaxItems=128
	// +optional
	OverrideRules []RuleWithCluster `json:"overrideRules,omitempty"`

	// TargetCluster and Overriders are one more rule, the first: the form
	// before there was a list of rules.
	//
	// +optional
	TargetCluster *ClusterAffinity `json:"targetCluster,omitempty"`

	// Overriders are the changes of that rule.
	//
	// +optional
	Overriders *Overriders `json:"overriders,omitempty"`
}

// RuleWithCluster is a set of changes for some clusters.
type RuleWithCluster struct {
	// TargetCluster selects the clusters; nil means all.
	//
	// +optional
	TargetCluster *ClusterAffinity `json:"targetCluster,omitempty"`

	// Overriders are the changes.
	Overriders Overriders `json:"overriders"`
}

// Overriders are changes, applied in the order image, command, args, labels,
// annotations, field, plaintext.
type Overriders struct {
	// Plaintext are JSON patch operations.
	//
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Plaintext []PlaintextOverrider `json:"plaintext,omitempty"`

	// ImageOverrider changes parts of images.
	//
	// +kubebuilder:validation:MaxItems=128
	// +optional
	ImageOverrider []ImageOverrider `json:"imageOverrider,omitempty"`

	// CommandOverrider changes the command of containers.
	//
	// +optional
	CommandOverrider []CommandArgsOverrider `json:"commandOverrider,omitempty"`

	// ArgsOverrider changes the args of containers.
	//
	// +optional
	ArgsOverrider []CommandArgsOverrider `json:"argsOverrider,omitempty"`

	// LabelsOverrider changes the labels of the object.
	//
	// +optional
	LabelsOverrider []LabelAnnotationOverrider `json:"labelsOverrider,omitempty"`

	// AnnotationsOverrider changes the annotations of the object.
	//
	// +optional
	AnnotationsOverrider []LabelAnnotationOverrider `json:"annotationsOverrider,omitempty"`

	// FieldOverrider changes JSON or YAML that is inside a string, as in a
	// ConfigMap.
	//
	// +kubebuilder:validation:MaxItems=64
	// +optional
	FieldOverrider []FieldOverrider `json:"fieldOverrider,omitempty"`
}

// OverriderOperator is add, remove or replace.
type OverriderOperator string

// Operators of overriders.
const (
	OverriderAdd     OverriderOperator = "add"
	OverriderRemove  OverriderOperator = "remove"
	OverriderReplace OverriderOperator = "replace"
)

// PlaintextOverrider is one JSON patch operation.
type PlaintextOverrider struct {
	// Path is a JSON pointer.
	Path string `json:"path"`

	// Operator is add, remove or replace.
	//
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is unused by remove.
	//
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitempty"`
}

// ImageOverrider changes one part of images.
type ImageOverrider struct {
	// Predicate limits the change to the image at one path.
	//
	// +optional
	Predicate *ImagePredicate `json:"predicate,omitempty"`

	// Component of the image.
	//
	// +kubebuilder:validation:Enum=Registry;Repository;Tag
	Component string `json:"component"`

	// Operator on the component.
	//
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is unused by remove.
	//
	// +optional
	Value string `json:"value,omitempty"`
}

// ImagePredicate names one image.
type ImagePredicate struct {
	// Path is a JSON pointer to the image string.
	Path string `json:"path"`
}

// CommandArgsOverrider changes the command or args of one container.
type CommandArgsOverrider struct {
	// ContainerName of the container.
	ContainerName string `json:"containerName"`

	// Operator is add or remove.
	//
	// +kubebuilder:validation:Enum=add;remove
	Operator OverriderOperator `json:"operator"`

	// Value are the words to add or remove.
	//
	// +optional
	Value []string `json:"value,omitempty"`
}

// LabelAnnotationOverrider changes labels or annotations.
type LabelAnnotationOverrider struct {
	// Operator on the keys of Value.
	//
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value are keys with values.
	//
	// +optional
	Value map[string]string `json:"value,omitempty"`
}

// FieldOverrider changes a document inside a string.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.json) && size(self.json) > 0 && has(self.yaml) && size(self.yaml) > 0)",message="fieldOverrider: the string is either json or yaml"
type FieldOverrider struct {
	// FieldPath is a JSON pointer to the string.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	FieldPath string `json:"fieldPath"`

	// JSON are operations on the string as a JSON document.
	//
	// +kubebuilder:validation:MaxItems=64
	// +optional
	JSON []PatchOperation `json:"json,omitempty"`

	// YAML are operations on the string as a YAML document.
	//
	// +kubebuilder:validation:MaxItems=64
	// +optional
	YAML []PatchOperation `json:"yaml,omitempty"`
}

// PatchOperation is one JSON patch operation on the document in a string.
type PatchOperation struct {
	// SubPath is a JSON pointer within the document.
	//
	// +kubebuilder:validation:MaxLength=1024
	SubPath string `json:"subPath"`

	// Operator is add, remove or replace.
	//
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is unused by remove.
	//
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitempty"`
}
