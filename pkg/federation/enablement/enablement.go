// Package enablement says in a few words what a member would have to serve to
// take an object of a kind. Pure functions.
//
//	Cluster.status.apiEnablements, kind -> Lacking -> "CRD foos.example.com"
package enablement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Lacking names what is missing in a member for the kind, whose objects are at
// resource. Nothing is missing while it is not known what the member serves.
func Lacking(served []clusterv1alpha1.APIEnablement, gvk schema.GroupVersionKind, resource string) string {
	if len(served) == 0 || has(served, gvk.GroupVersion(), gvk.Kind) {
		return ""
	}
	name := schema.GroupResource{Group: gvk.Group, Resource: resource}.String()
	if others := versions(served, gvk.GroupKind()); len(others) > 0 {
		return fmt.Sprintf("version %s of %s (it serves %s)", gvk.Version, name, strings.Join(others, ", "))
	}
	if strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io") {
		return "CRD " + name
	}
	return name
}

func has(served []clusterv1alpha1.APIEnablement, gv schema.GroupVersion, kind string) bool {
	return slices.ContainsFunc(served, func(e clusterv1alpha1.APIEnablement) bool {
		return e.GroupVersion == gv.String() && slices.ContainsFunc(e.Resources, func(r clusterv1alpha1.APIResource) bool { return r.Kind == kind })
	})
}

func versions(served []clusterv1alpha1.APIEnablement, gk schema.GroupKind) []string {
	var out []string
	for _, e := range served {
		gv, err := schema.ParseGroupVersion(e.GroupVersion)
		if err == nil && gv.Group == gk.Group && has(served, gv, gk.Kind) {
			out = append(out, gv.Version)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
