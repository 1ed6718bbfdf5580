package enablement

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func TestLacking(t *testing.T) {
	served := []clusterv1alpha1.APIEnablement{
		{GroupVersion: "v1", Resources: []clusterv1alpha1.APIResource{{Name: "pods", Kind: "Pod"}}},
		{GroupVersion: "example.com/v1", Resources: []clusterv1alpha1.APIResource{{Name: "foos", Kind: "Foo"}, {Name: "bars", Kind: "Bar"}}},
		{GroupVersion: "example.com/v2", Resources: []clusterv1alpha1.APIResource{{Name: "foos", Kind: "Foo"}}},
	}
	for _, c := range []struct{ apiVersion, kind, resource, want string }{
		{"v1", "Pod", "pods", ""},
		{"example.com/v2", "Foo", "foos", ""},
		{"example.com/v1beta1", "Foo", "foos", "version v1beta1 of foos.example.com (it serves v1, v2)"},
		{"example.com/v2", "Bar", "bars", "version v2 of bars.example.com (it serves v1)"},
		{"example.com/v1", "Baz", "bazs", "CRD bazs.example.com"},
		{"other.example.com/v1", "Foo", "foos", "CRD foos.other.example.com"},
		{"policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudgets.policy"},
		{"resource.k8s.io/v1", "ResourceClaim", "resourceclaims", "resourceclaims.resource.k8s.io"},
	} {
		gvk := schema.FromAPIVersionAndKind(c.apiVersion, c.kind)
		if got := Lacking(served, gvk, c.resource); got != c.want {
			t.Errorf("%s: got %q, want %q", gvk, got, c.want)
		}
		if got := Lacking(nil, gvk, c.resource); got != "" {
			t.Errorf("%s: nothing is known, got %q", gvk, got)
		}
	}
}
