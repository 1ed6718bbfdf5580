package join

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"create", "update", "patch", "delete"}
	allVerbs   = slices.Concat(readVerbs, writeVerbs)
)

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// ReadRules are the rights of the identity that reads and routes: it reads what
// is cached and what a GET may fall through to, and carries out what users do
// to member kinds. It reads neither Secrets nor ConfigMaps nor RBAC, cannot
// impersonate, and has no way to a kubelet.
func ReadRules(memberKinds []GroupResource) []rbacv1.PolicyRule {
	routed := slices.Concat(allVerbs, []string{"deletecollection"})
	stream := []string{"get", "create"}
	part := []string{"get", "update", "patch"}
	rules := []rbacv1.PolicyRule{
		// Member and dual kinds: read and written.
		rule("", routed, "pods", "events", "endpoints", "persistentvolumeclaims"),
		rule("", allVerbs, "nodes", "persistentvolumes"),
		rule("", part, "pods/status", "pods/ephemeralcontainers", "pods/resize", "nodes/status", "persistentvolumeclaims/status", "persistentvolumes/status"),
		rule("", []string{"get"}, "pods/log"),
		rule("", stream, "pods/exec", "pods/attach", "pods/portforward"),
		rule("", slices.Concat([]string{"get"}, writeVerbs), "pods/proxy", "services/proxy"),
		rule("", []string{"create"}, "pods/eviction", "pods/binding", "bindings"),
		rule("events.k8s.io", routed, "events"),
		rule("discovery.k8s.io", routed, "endpointslices"),
		rule("apps", routed, "replicasets", "controllerrevisions"),
		rule("apps", part, "replicasets/status", "replicasets/scale"),
		rule("batch", routed, "jobs"),
		rule("batch", part, "jobs/status"),
		rule("metrics.k8s.io", []string{"get", "list"}, "pods", "nodes"),
		// What is only read: the namespace kube-system names the cluster, the
		// workloads are where a GET falls through to.
		rule("", readVerbs, "namespaces", "serviceaccounts", "services", "replicationcontrollers", "resourcequotas", "limitranges", "podtemplates"),
		rule("apps", readVerbs, "deployments", "statefulsets", "daemonsets"),
		rule("apps", []string{"get"}, "deployments/scale", "statefulsets/scale"),
		rule("batch", readVerbs, "cronjobs"),
		rule("autoscaling", readVerbs, "horizontalpodautoscalers"),
		rule("policy", readVerbs, "poddisruptionbudgets"),
		rule("networking.k8s.io", readVerbs, "ingresses", "ingressclasses", "networkpolicies"),
		rule("storage.k8s.io", readVerbs, "storageclasses", "volumeattachments", "csinodes", "csidrivers", "csistoragecapacities"),
		rule("scheduling.k8s.io", readVerbs, "priorityclasses"),
		rule("coordination.k8s.io", readVerbs, "leases"),
		rule("resource.k8s.io", readVerbs, "resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"),
		rule("apiextensions.k8s.io", readVerbs, "customresourcedefinitions"),
		discoveryRule(),
	}
	for _, k := range memberKinds {
		rules = append(rules, rule(k.Group, routed, k.Resource), rule(k.Group, part, k.Resource+"/status", k.Resource+"/scale"))
	}
	return rules
}

func discoveryRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		NonResourceURLs: []string{"/readyz", "/readyz/*", "/livez", "/livez/*", "/healthz", "/version", "/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*"},
		Verbs:           []string{"get"},
	}
}

// ApplyRules are the rights of the identity that writes what is propagated. It
// has no streams into Pods, writes no Pods, Nodes, Events or Leases, gets no
// tokens but its own and cannot impersonate.
//
// Namespaced roles are propagated, and RBAC lets nobody grant what they do not
// hold: hence escalate on roles, and bind on roles and clusterroles (a
// RoleBinding may name a ClusterRole). ClusterRoles are written under the
// ordinary check, and ClusterRoleBindings not at all, unless clusterRBAC says
// so: with it the identity can make itself administrator of the member.
func ApplyRules(clusterRBAC bool) []rbacv1.PolicyRule {
	part := []string{"get", "update", "patch"}
	rules := []rbacv1.PolicyRule{
		rule("", allVerbs, "namespaces", "configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims", "persistentvolumes", "resourcequotas", "limitranges", "replicationcontrollers", "podtemplates"),
		rule("", part, "replicationcontrollers/scale"),
		rule("", readVerbs, "pods"),
		rule("apps", allVerbs, "deployments", "replicasets", "statefulsets", "daemonsets"),
		rule("apps", part, "deployments/scale", "replicasets/scale", "statefulsets/scale"),
		rule("apps", readVerbs, "controllerrevisions"),
		rule("batch", allVerbs, "jobs", "cronjobs"),
		rule("autoscaling", allVerbs, "horizontalpodautoscalers"),
		rule("policy", allVerbs, "poddisruptionbudgets"),
		rule("networking.k8s.io", allVerbs, "ingresses", "ingressclasses", "networkpolicies"),
		rule("rbac.authorization.k8s.io", slices.Concat(allVerbs, []string{"escalate", "bind"}), "roles"),
		rule("rbac.authorization.k8s.io", allVerbs, "rolebindings"),
		rule("rbac.authorization.k8s.io", slices.Concat(allVerbs, []string{"bind"}), "clusterroles"),
		rule("rbac.authorization.k8s.io", readVerbs, "clusterrolebindings"),
		rule("scheduling.k8s.io", allVerbs, "priorityclasses"),
		rule("storage.k8s.io", allVerbs, "storageclasses", "volumeattributesclasses", "csidrivers"),
		rule("node.k8s.io", allVerbs, "runtimeclasses"),
		rule("resource.k8s.io", allVerbs, "resourceclaims", "resourceclaimtemplates", "deviceclasses"),
		rule("flowcontrol.apiserver.k8s.io", allVerbs, "flowschemas", "prioritylevelconfigurations"),
		rule("apiextensions.k8s.io", allVerbs, "customresourcedefinitions"),
		rule("admissionregistration.k8s.io", allVerbs, "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
		discoveryRule(),
	}
	if clusterRBAC {
		rules = append(rules,
			rule("rbac.authorization.k8s.io", []string{"escalate"}, "clusterroles"),
			rule("rbac.authorization.k8s.io", writeVerbs, "clusterrolebindings"))
	}
	return rules
}

// membershipRules let the apply identity take us out of the member again, and,
// unless the rights are fixed, keep the list of custom groups.
func membershipRules(fixed bool) []rbacv1.PolicyRule {
	own := func(verbs []string, resource string, names ...string) rbacv1.PolicyRule {
		r := rule("rbac.authorization.k8s.io", verbs, resource)
		r.ResourceNames = names
		return r
	}
	rules := []rbacv1.PolicyRule{
		own([]string{"get", "delete"}, "clusterroles", membershipRole, v1alpha1.ReadServiceAccount, v1alpha1.ApplyServiceAccount, v1alpha1.CustomRole),
		own([]string{"get", "delete"}, "clusterrolebindings", membershipRole, v1alpha1.ReadServiceAccount, v1alpha1.ApplyServiceAccount, v1alpha1.CustomRole),
	}
	if !fixed {
		rules = append(rules, own([]string{"get", "update", "patch", "escalate"}, "clusterroles", v1alpha1.CustomRole))
	}
	return rules
}
