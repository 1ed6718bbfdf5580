package membership

import (
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// ownGroups are the groups of our own kinds, which no member serves.
var ownGroups = []string{v1alpha1.GroupName, "policy.karmada.io", "work.karmada.io", "apps.karmada.io", "config.karmada.io", "isthmus.dev"}

// aggregatedGroups are groups of Kubernetes that client-go's scheme lacks.
var aggregatedGroups = []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io", "apiregistration.k8s.io", "apiextensions.k8s.io"}

// builtIn reports whether a group is one of Kubernetes itself. A
// CustomResourceDefinition may name such a group, and must not win rights on
// what else is in it.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || scheme.Scheme.IsGroupRegistered(group) || slices.Contains(aggregatedGroups, group)
}

// FederatedGroups are the API groups of CustomResourceDefinitions, given by
// name (PLURAL.GROUP), whose objects may be propagated: all but our own and
// those of Kubernetes itself. Sorted, each once.
func FederatedGroups(crdNames []string) []string {
	var groups []string
	for _, name := range crdNames {
		_, group, ok := strings.Cut(name, ".")
		if ok && !builtIn(group) && !slices.Contains(ownGroups, group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}
