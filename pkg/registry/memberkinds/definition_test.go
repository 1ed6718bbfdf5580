package memberkinds

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type crd = apiextensionsv1.CustomResourceDefinition

// definition has one version per name; "-v" is one that is not served.
func definition(column string, versions ...string) *crd {
	d := &crd{ObjectMeta: metav1.ObjectMeta{
		Name: "widgets.example.com", UID: "member", ResourceVersion: "7",
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "long", approvedAnnotation: "yes"},
		Finalizers:  []string{"member/own"},
	}}
	d.Spec.Group = "example.com"
	d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"}
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{}}
	for i, v := range versions {
		served := v[0] != '-'
		if !served {
			v = v[1:]
		}
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: served, Storage: i == 0,
			AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: column, Type: "string", JSONPath: ".x"}},
		})
	}
	return d
}

func column(d *crd) string { return d.Spec.Versions[0].AdditionalPrinterColumns[0].Name }

func TestDecideNew(t *testing.T) {
	got := Decide(nil, "v1", []Offer{
		{"m0", definition("none", "v2")}, // does not serve what is wanted
		{"m1", definition("first", "v2", "v1", "-v0")},
		{"m2", definition("second", "v1")},
	})
	if got == nil {
		t.Fatal("nothing is imported")
	}
	if got.UID != "" || got.ResourceVersion != "" || len(got.Finalizers) > 0 || len(got.Annotations) != 3 {
		t.Errorf("metadata of the member came along: %+v", got.ObjectMeta)
	}
	if got.Annotations[Imported] != "true" || got.Annotations[From] != "m1" || got.Annotations[approvedAnnotation] != "yes" || column(got) != "first" {
		t.Errorf("imported %v, %s", got.Annotations, column(got))
	}
	if got.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter || got.Spec.Conversion.Webhook != nil {
		t.Errorf("a webhook of the member came along: %+v", got.Spec.Conversion)
	}
	var storage []string
	for _, v := range got.Spec.Versions {
		if !v.Served {
			t.Errorf("version %s is not served", v.Name)
		}
		if v.Storage {
			storage = append(storage, v.Name)
		}
	}
	if len(got.Spec.Versions) != 2 || len(storage) != 1 || storage[0] != "v1" {
		t.Errorf("versions %+v", got.Spec.Versions)
	}
	if Decide(nil, "v1", nil) != nil {
		t.Error("something comes of nothing")
	}
}

func TestDecidePresent(t *testing.T) {
	first, second := Offer{"m1", definition("first", "v1")}, Offer{"m2", definition("second", "v1")}
	present := Decide(nil, "v1", []Offer{second})
	stored := present.DeepCopy()
	stored.UID, stored.ResourceVersion = "own", "3"
	stored.Spec.Names.Singular, stored.Spec.Names.ListKind = "widget", "WidgetList" // as the API server fills in

	if got := Decide(stored, "v1", []Offer{first, second}); got != nil {
		t.Errorf("two members take turns: %v", got.Annotations)
	}
	if got := Decide(stored, "v1", nil); got != nil {
		t.Error("no member answers, and the definition changes")
	}
	changed := Offer{"m2", definition("third", "v1")}
	got := Decide(stored, "v1", []Offer{first, changed})
	if got == nil || column(got) != "third" || got.ResourceVersion != "3" || got.UID != "own" {
		t.Errorf("a change of the member is not followed: %+v", got)
	}
	got = Decide(stored, "v1", []Offer{first})
	if got == nil || got.Annotations[From] != "m1" || column(got) != "first" {
		t.Errorf("after m2 has left: %+v", got)
	}
	federated := definition("federated", "v1")
	if Decide(federated, "v1", []Offer{first}) != nil {
		t.Error("a definition that is the control plane's own is written over")
	}
}
