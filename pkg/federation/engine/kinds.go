package engine

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one federated kind.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
}

func (k kind) gvr() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.resource)
}

// defaultKinds are watched from the start. Kinds that policies name are added.
var defaultKinds = []kind{
	builtin("", "v1", "Namespace", "namespaces", false),
	builtin("", "v1", "ConfigMap", "configmaps", true),
	builtin("", "v1", "Secret", "secrets", true),
	builtin("", "v1", "ServiceAccount", "serviceaccounts", true),
	builtin("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
	builtin("", "v1", "Service", "services", true),
	builtin("", "v1", "LimitRange", "limitranges", true),
	builtin("", "v1", "ResourceQuota", "resourcequotas", true),
	builtin("", "v1", "ReplicationController", "replicationcontrollers", true),
	builtin("apps", "v1", "Deployment", "deployments", true),
	builtin("apps", "v1", "ReplicaSet", "replicasets", true),
	builtin("apps", "v1", "StatefulSet", "statefulsets", true),
	builtin("apps", "v1", "DaemonSet", "daemonsets", true),
	builtin("batch", "v1", "Job", "jobs", true),
	builtin("batch", "v1", "CronJob", "cronjobs", true),
	builtin("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
	builtin("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
	builtin("networking.k8s.io", "v1", "Ingress", "ingresses", true),
	builtin("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
	builtin("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
	builtin("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true),
	builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
}

func builtin(group, version, name, resource string, namespaced bool) kind {
	return kind{
		GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: name},
		resource:         resource, namespaced: namespaced,
	}
}

var (
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	daemonSetKind  = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	secretKind     = schema.GroupKind{Kind: "Secret"}
	claimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	crdKind        = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	deploymentGVK  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	replicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	cronJobKind    = schema.GroupKind{Group: "batch", Kind: "CronJob"}
)

// sticky kinds never leave a cluster because of a placement: what they contain
// would be lost.
func sticky(gk schema.GroupKind) bool {
	return gk == namespaceKind || gk == claimKind || gk == crdKind
}

// divisibleKinds have spec.replicas that can be divided.
var divisibleKinds = map[schema.GroupKind]bool{
	deploymentKind: true, replicaSetKind: true, {Group: "apps", Kind: "StatefulSet"}: true, {Kind: "ReplicationController"}: true,
}

func divisible(gk schema.GroupKind) bool { return divisibleKinds[gk] }

// hasStatus says whether copies' status is kept and aggregated.
func hasStatus(gk schema.GroupKind) bool {
	switch gk.Group {
	case "apps", "batch", "autoscaling", "policy":
		return true
	case "":
		// A ResourceQuota's is what pkg/registry/quota counts.
		return gk.Kind == "Service" || gk.Kind == "PersistentVolumeClaim" || gk.Kind == "ReplicationController"
	case "networking.k8s.io":
		return gk.Kind == "Ingress"
	case "rbac.authorization.k8s.io", "apiextensions.k8s.io":
		return false
	}
	return true
}
