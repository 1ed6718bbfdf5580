package outage

import (
	"strings"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// touchesOursOnly says whether a write touches nothing but our identities, or changes
// nothing at all.
func touchesOursOnly(a labtest.Audited) bool {
	o := a.ObjectRef
	switch {
	case o.Namespace == ourNamespace, o.Resource == "namespaces" && o.Name == ourNamespace:
		return true
	case o.APIGroup == "rbac.authorization.k8s.io":
		return strings.HasPrefix(o.Name, "isthmus-")
	case strings.HasSuffix(o.APIGroup, "authorization.k8s.io"), strings.HasSuffix(o.APIGroup, "authentication.k8s.io"):
		return a.Verb == "create" // a review
	}
	return false
}
