package memberkinds

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of an imported definition.
const (
	// Imported marks a definition that was copied from a member. Its objects
	// are the members'; it is never propagated.
	Imported = "isthmus.dev/member-kind"
	// From names the member that it was copied from.
	From = "isthmus.dev/imported-from"

	approvedAnnotation = "api-approved.kubernetes.io"
)

// Offer is a member's definition.
type Offer struct {
	Cluster    string
	Definition *apiextensionsv1.CustomResourceDefinition
}

// Decide says which definition the control plane is to have for a kind: nil
// when the one that is there stays, because it is not an imported one or
// because it is the same. Offers are in join order. The member that the present
// definition came from keeps its say while it has one, so that two members with
// different definitions do not take turns.
func Decide(present *apiextensionsv1.CustomResourceDefinition, version string, offers []Offer) *apiextensionsv1.CustomResourceDefinition {
	if present != nil && present.Annotations[Imported] != "true" {
		return nil
	}
	offers = slices.DeleteFunc(slices.Clone(offers), func(o Offer) bool { return !serves(o.Definition, version) })
	if len(offers) == 0 {
		return nil
	}
	chosen := offers[0]
	if present != nil {
		for _, o := range offers {
			if o.Cluster == present.Annotations[From] {
				chosen = o
			}
		}
	}
	want := sanitized(chosen, version)
	if present == nil {
		return want
	}
	out := present.DeepCopy()
	out.Spec = want.Spec
	out.Annotations = maps.Clone(present.Annotations)
	maps.Copy(out.Annotations, want.Annotations)
	if equality.Semantic.DeepEqual(withoutDefaults(out), withoutDefaults(present)) {
		return nil
	}
	return out
}

func serves(crd *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

// sanitized is a member's definition without what only the member can do: its
// webhooks convert between versions, its storage keeps objects.
func sanitized(o Offer, version string) *apiextensionsv1.CustomResourceDefinition {
	spec := o.Definition.Spec.DeepCopy()
	spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	spec.PreserveUnknownFields = false
	spec.Versions = slices.DeleteFunc(spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
	for i := range spec.Versions {
		spec.Versions[i].Storage = spec.Versions[i].Name == version
	}
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        o.Definition.Name,
			Annotations: map[string]string{Imported: "true", From: o.Cluster},
		},
		Spec: *spec,
	}
	if v := o.Definition.Annotations[approvedAnnotation]; v != "" {
		out.Annotations[approvedAnnotation] = v
	}
	return out
}

// withoutDefaults leaves out what the API server fills in by itself.
func withoutDefaults(crd *apiextensionsv1.CustomResourceDefinition) any {
	spec := crd.Spec.DeepCopy()
	spec.Names.Singular = cmp.Or(spec.Names.Singular, strings.ToLower(spec.Names.Kind))
	spec.Names.ListKind = cmp.Or(spec.Names.ListKind, spec.Names.Kind+"List")
	return []any{spec, crd.Annotations}
}
