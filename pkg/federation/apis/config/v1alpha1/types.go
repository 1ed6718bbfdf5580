package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ResourceInterpreterCustomization explains a kind to the engine by scripts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=resourceinterpretercustomizations,scope=Cluster,shortName=ric,categories={karmada-io}
// +kubebuilder:printcolumn:name="Target-Version",type=string,JSONPath=`.spec.target.apiVersion`
// +kubebuilder:printcolumn:name="Target-Kind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreterCustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceInterpreterCustomizationSpec `json:"spec"`
}

// ResourceInterpreterCustomizationList is a list of
// ResourceInterpreterCustomizations.
//
// +kubebuilder:object:root=true
type ResourceInterpreterCustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceInterpreterCustomization `json:"items"`
}

// ResourceInterpreterCustomizationSpec is a kind and the scripts for it.
type ResourceInterpreterCustomizationSpec struct {
	// Target is the kind that is explained.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.target cannot be changed: make another customization"
	Target CustomizationTarget `json:"target"`

	// Customizations are the scripts.
	Customizations CustomizationRules `json:"customizations"`
}

// CustomizationTarget names a kind.
type CustomizationTarget struct {
	// APIVersion of the kind.
	//
	// +kubebuilder:validation:MinLength=1
	APIVersion string `json:"apiVersion"`

	// Kind of the objects.
	//
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
}

// CustomizationRules are the scripts for a kind, one an operation. Each defines
// the function that it is named after below.
type CustomizationRules struct {
	// Retention keeps values of the member: Retain(desiredObj, observedObj).
	//
	// +optional
	Retention *Script `json:"retention,omitempty"`

	// ReplicaResource reads how many replicas an object has, and what one of
	// them asks for: GetReplicas(desiredObj).
	//
	// +optional
	ReplicaResource *Script `json:"replicaResource,omitempty"`

	// ComponentResource reads the parts of an object that has several kinds of
	// replicas: GetComponents(desiredObj).
	//
	// +optional
	ComponentResource *Script `json:"componentResource,omitempty"`

	// ReplicaRevision sets how many replicas an object has:
	// ReviseReplica(desiredObj, desiredReplica).
	//
	// +optional
	ReplicaRevision *Script `json:"replicaRevision,omitempty"`

	// StatusReflection picks what is kept of a copy's status:
	// ReflectStatus(observedObj).
	//
	// +optional
	StatusReflection *Script `json:"statusReflection,omitempty"`

	// StatusAggregation makes one status of those of the copies:
	// AggregateStatus(desiredObj, statusItems).
	//
	// +optional
	StatusAggregation *Script `json:"statusAggregation,omitempty"`

	// HealthInterpretation says whether a copy is healthy:
	// InterpretHealth(observedObj).
	//
	// +optional
	HealthInterpretation *Script `json:"healthInterpretation,omitempty"`

	// DependencyInterpretation lists what an object needs beside it:
	// GetDependencies(desiredObj).
	//
	// +optional
	DependencyInterpretation *Script `json:"dependencyInterpretation,omitempty"`
}

// Script is a script in Lua.
type Script struct {
	// LuaScript defines the function, with its "function" and "end".
	//
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}
