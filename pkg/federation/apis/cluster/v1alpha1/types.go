package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is one member: where its API is, how it is reached, and how it fares.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clusters,singular=cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="CacheSynced")].status`
// +kubebuilder:printcolumn:name="Absent",type=string,JSONPath=`.metadata.annotations.isthmus\.dev/absent`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodeSummary.totalNum`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.resourceSummary.allocated.pods`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Region",type=string,priority=1,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.spec.apiEndpoint`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 48",message="the name of a Cluster has at most 48 characters"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a Cluster consists of lower case letters, digits and dashes, without dots: it is used as a suffix of object names and as a label value"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.endsWith('-apply')",message="the name of a Cluster must not end in -apply: the Secret of a cluster's apply identity has that suffix"
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how the member is reached and what it is.
	Spec ClusterSpec `json:"spec"`

	// Status is what was last observed of the member.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec says how a member is reached and what it is.
//
// +kubebuilder:validation:XValidation:rule="self.syncMode == 'Push'",message="spec.syncMode Pull is not supported: members are reached by the control plane, use Push"
// +kubebuilder:validation:XValidation:rule="!has(self.resourceModels) || self.resourceModels.size() == 0",message="spec.resourceModels is not supported: capacity is taken from the member's nodes and pods, remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.secretRef.__namespace__ == 'isthmus-system'",message="spec.secretRef.namespace must be isthmus-system: credentials of members live nowhere else"
// +kubebuilder:validation:XValidation:rule="!has(self.impersonatorSecretRef) || self.impersonatorSecretRef.__namespace__ == 'isthmus-system'",message="spec.impersonatorSecretRef.namespace must be isthmus-system: credentials of members live nowhere else"
// +kubebuilder:validation:XValidation:rule="!has(self.apiEndpoint) || !self.apiEndpoint.startsWith('http://')",message="spec.apiEndpoint must not be http: credentials would travel in clear text, use https"
// +kubebuilder:validation:XValidation:rule="!has(self.proxyHeader) || self.proxyHeader.size() == 0 || (has(self.proxyURL) && self.proxyURL.startsWith('http'))",message="spec.proxyHeader needs a spec.proxyURL of scheme http or https"
type ClusterSpec struct {
	// ID identifies the member: the UID of its kube-system namespace. It is
	// recorded when the member joins. A member that answers with another UID
	// is not used until the new one is written here.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`

	// SyncMode says who brings objects to the member. Only Push is supported.
	// +kubebuilder:validation:Enum=Push;Pull
	// +kubebuilder:default=Push
	// +optional
	SyncMode ClusterSyncMode `json:"syncMode,omitempty"`

	// APIEndpoint is the address of the member's API: a URL, or
	// hostname, hostname:port, IP or IP:port, for which https is meant.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	APIEndpoint string `json:"apiEndpoint,omitempty"`

	// SecretRef names the Secret with the credentials of the identity that
	// reads and routes: token, or tls.crt and tls.key; and caBundle or ca.crt.
	// The identity that applies is in the Secret NAME-apply, where it exists.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`

	// ImpersonatorSecretRef names the Secret with the token of an identity
	// that may impersonate users in the member.
	// +optional
	ImpersonatorSecretRef *LocalSecretReference `json:"impersonatorSecretRef,omitempty"`

	// InsecureSkipTLSVerification turns off the check of the serving
	// certificate of the member.
	// +optional
	InsecureSkipTLSVerification bool `json:"insecureSkipTLSVerification,omitempty"`

	// ProxyURL is a proxy (http, https or socks5) through which the member is
	// reached.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ProxyURL string `json:"proxyURL,omitempty"`

	// ProxyHeader are headers for the proxy's CONNECT. Several values of one
	// header are separated by commas.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ProxyHeader map[string]string `json:"proxyHeader,omitempty"`

	// Provider is the name of the provider of the member.
	// +optional
	Provider string `json:"provider,omitempty"`

	// Region is where the member is.
	// +optional
	Region string `json:"region,omitempty"`

	// Zone is where in the region the member is. Zones is preferred.
	// +optional
	Zone string `json:"zone,omitempty"`

	// Zones are the failure zones over which the member extends.
	// +optional
	Zones []string `json:"zones,omitempty"`

	// Taints keep away what does not tolerate them.
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`

	// ResourceModels is not supported and refused when set.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ResourceModels []ResourceModel `json:"resourceModels,omitempty"`
}

// ClusterSyncMode says who brings objects to the member.
type ClusterSyncMode string

// Modes of synchronization.
const (
	// Push: the control plane writes to the member.
	Push ClusterSyncMode = "Push"
	// Pull: an agent in the member fetches. Not supported.
	Pull ClusterSyncMode = "Pull"
)

// LocalSecretReference names a Secret of the control plane.
type LocalSecretReference struct {
	// Namespace of the Secret.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Secret.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ResourceModel is a grade of node sizes.
type ResourceModel struct {
	// Grade is the index of the model.
	Grade uint `json:"grade"`
	// Ranges are the quantities that belong to the grade.
	// +kubebuilder:validation:MaxItems=64
	Ranges []ResourceModelRange `json:"ranges"`
}

// ResourceModelRange is a half-open range of a resource.
type ResourceModelRange struct {
	// Name of the resource.
	Name corev1.ResourceName `json:"name"`
	// Min is included.
	Min resource.Quantity `json:"min"`
	// Max is not included.
	Max resource.Quantity `json:"max"`
}

// ClusterStatus is what was last observed of a member.
type ClusterStatus struct {
	// KubernetesVersion is the version that the member's API reports.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// APIEnablements lists what the member serves.
	// +optional
	APIEnablements []APIEnablement `json:"apiEnablements,omitempty"`

	// Conditions: Ready, CacheSynced, CredentialsValid,
	// CompleteAPIEnablements.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NodeSummary counts nodes.
	// +optional
	NodeSummary *NodeSummary `json:"nodeSummary,omitempty"`

	// ResourceSummary sums resources over nodes and pods.
	// +optional
	ResourceSummary *ResourceSummary `json:"resourceSummary,omitempty"`

	// RemedyActions are actions asked of other controllers. It is kept for
	// compatibility of stored objects and never set.
	// +optional
	RemedyActions []string `json:"remedyActions,omitempty"`
}

// APIEnablement lists the resources of one group and version.
type APIEnablement struct {
	// GroupVersion is the group and version.
	GroupVersion string `json:"groupVersion"`
	// Resources are what it serves.
	// +optional
	Resources []APIResource `json:"resources,omitempty"`
}

// APIResource is one served resource.
type APIResource struct {
	// Name is the plural name of the resource.
	Name string `json:"name"`
	// Kind is its kind.
	Kind string `json:"kind"`
}

// NodeSummary counts the nodes of a member.
type NodeSummary struct {
	// TotalNum is the number of nodes.
	// +optional
	TotalNum int32 `json:"totalNum,omitempty"`
	// ReadyNum is the number of Ready nodes.
	// +optional
	ReadyNum int32 `json:"readyNum,omitempty"`
}

// ResourceSummary sums resources over the nodes and pods of a member.
type ResourceSummary struct {
	// Allocatable is the sum over all Ready nodes that accept pods.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocating is requested by pods that have no node yet.
	// +optional
	Allocating corev1.ResourceList `json:"allocating,omitempty"`
	// Allocated is requested by pods on nodes.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// AllocatableModelings is kept for compatibility of stored objects and
	// never set.
	// +optional
	AllocatableModelings []AllocatableModeling `json:"allocatableModelings,omitempty"`
}

// AllocatableModeling counts nodes of one grade.
type AllocatableModeling struct {
	// Grade is the index of the model.
	Grade uint `json:"grade"`
	// Count is the number of nodes.
	Count int `json:"count"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the Clusters.
	Items []Cluster `json:"items"`
}
