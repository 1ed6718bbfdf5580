// Package intent decides what the engine may do to members at all: what is
// never propagated, whatever a policy says, and when a copy may be deleted.
// Pure functions; the caller brings the evidence, read live.
package intent

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReservedNamespace says whether a namespace belongs to a cluster itself or to
// us: kube-*, isthmus-*.
func ReservedNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "isthmus-")
}

// forbiddenGroups are our own kinds: they describe the fleet.
var forbiddenGroups = map[string]bool{
	"cluster.karmada.io": true,
	"policy.karmada.io":  true,
	"work.karmada.io":    true,
	"apps.karmada.io":    true,
	"config.karmada.io":  true,
	"isthmus.dev":        true,
}

// forbiddenKinds are each API server's own affair, or member objects.
var forbiddenKinds = map[schema.GroupKind]string{
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:  "APIServices belong to the API server that serves them",
	{Group: "coordination.k8s.io", Kind: "Lease"}:          "Leases are held by processes of one cluster",
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}: "Leases are held by processes of one cluster",
	{Kind: "Event"}:                         "Events tell of one cluster",
	{Group: "events.k8s.io", Kind: "Event"}: "Events tell of one cluster",
	{Kind: "Node"}:                          "Nodes are member objects",
	{Kind: "Pod"}:                           "Pods are created in members through the endpoint",
	{Kind: "Endpoints"}:                     "Endpoints are made by the member",
	{Kind: "ComponentStatus"}:               "not an object that is stored",
	{Kind: "Binding"}:                       "not an object that is stored",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:                  "EndpointSlices are made by the member",
	{Group: "apps", Kind: "ControllerRevision"}:                         "ControllerRevisions are made by the member",
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:   "certificates are signed by one cluster",
	{Group: "storage.k8s.io", Kind: "CSINode"}:                          "made by the member's nodes",
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:                 "made by the member's controllers",
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:               "made by the member's controllers",
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}:        "belongs to the API server",
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: "belongs to the API server",
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                     "allocated by the member",
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                   "belongs to the member's network",
}

// memberKindAnnotation marks a CustomResourceDefinition that was copied from a
// member, so that its kind is served though its objects are the members'.
const memberKindAnnotation = "isthmus.dev/member-kind"

// Forbidden says why a template is never propagated; ok is false for templates
// that may be. typ is the type of a Secret.
func Forbidden(gk schema.GroupKind, meta metav1.Object, secretType string) (why string, forbidden bool) {
	name, ns := meta.GetName(), meta.GetNamespace()
	if forbiddenGroups[gk.Group] {
		return "kinds of the federation stay in the control plane", true
	}
	if why, ok := forbiddenKinds[gk]; ok {
		return why, true
	}
	if ReservedNamespace(ns) || gk == (schema.GroupKind{Kind: "Namespace"}) && ReservedNamespace(name) {
		return "the namespace is reserved (kube-*, isthmus-*)", true
	}
	if meta.GetAnnotations()[memberKindAnnotation] == "true" {
		return "imported from a member, whose own it is", true
	}
	if _, ok := meta.GetLabels()["kubernetes.io/bootstrapping"]; ok {
		return "made by every API server at start (label kubernetes.io/bootstrapping)", true
	}
	if gk == replicaSetKind && isRevision(meta) {
		return "this ReplicaSet stands for a revision of a Deployment", true
	}
	return forbiddenObject(gk, name, ns, secretType)
}

var replicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}

// isRevision says whether a ReplicaSet is, or was, a revision of a Deployment:
// one that was orphaned runs on in the members as part of their Deployment.
func isRevision(meta metav1.Object) bool {
	if _, numbered := meta.GetAnnotations()["deployment.kubernetes.io/revision"]; numbered {
		return true
	}
	owner := metav1.GetControllerOf(meta)
	return owner != nil && owner.Kind == "Deployment"
}

func forbiddenObject(gk schema.GroupKind, name, ns, secretType string) (string, bool) {
	system := strings.HasPrefix(name, "system:")
	switch gk {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return "every cluster has its own kube-root-ca.crt", name == "kube-root-ca.crt"
	case schema.GroupKind{Kind: "Service"}:
		return "default/kubernetes is the API server of each cluster", ns == "default" && name == "kubernetes"
	case schema.GroupKind{Kind: "Namespace"}:
		return "every cluster has its own namespace default", name == "default"
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return "every namespace of every cluster has its own default ServiceAccount", name == "default"
	case schema.GroupKind{Kind: "Secret"}:
		token := secretType == "kubernetes.io/service-account-token" || secretType == "bootstrap.kubernetes.io/token"
		return "a token is valid in the cluster that issued it only", token
	case schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:
		return "built in", strings.HasPrefix(name, "system-")
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		_, group, _ := strings.Cut(name, ".")
		return "CustomResourceDefinitions of the federation stay in the control plane", forbiddenGroups[group]
	}
	switch gk.Group {
	case "rbac.authorization.k8s.io":
		return "roles of the system (system:) are made by every API server", system
	case "flowcontrol.apiserver.k8s.io":
		return "built in", builtinFlow[name] || system
	}
	return "", false
}

// builtinFlow are names that every API server keeps on its own.
var builtinFlow = map[string]bool{
	"catch-all": true, "exempt": true, "global-default": true, "probes": true, "service-accounts": true,
	"endpoint-controller": true, "kube-controller-manager": true, "kube-scheduler": true,
	"kube-system-service-accounts": true, "workload-leader-election": true, "system": true,
	"leader-election": true, "node-high": true, "workload-high": true, "workload-low": true,
}

// NeedsExactName says whether only a policy that names the object may
// propagate it: rights over a whole cluster are not given by a wildcard.
func NeedsExactName(gk schema.GroupKind) bool {
	return gk == schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}
}
