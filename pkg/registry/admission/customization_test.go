package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/dynamic/fake"

	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
)

func customizationNamed(name, lua string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"target":         map[string]any{"apiVersion": "example.com/v1", "kind": "Foo"},
			"customizations": map[string]any{"healthInterpretation": map[string]any{"luaScript": lua}},
		},
	}}
}

func TestCustomizationAdmission(t *testing.T) {
	const good = "function InterpretHealth(o) return true end"
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{customizations: "ResourceInterpreterCustomizationList"}, customizationNamed("there", good))
	plugin := &customization{Handler: admission.NewHandler(admission.Create), validator: interpreter.NewValidator()}
	if plugin.ValidateInitialization() == nil {
		t.Fatal("usable without a client")
	}
	plugin.SetDynamicClient(client)
	for _, c := range []struct{ name, lua, resource, want string }{
		{"there", good, customizations.Resource, ""},
		{"new", good, customizations.Resource, "there answers InterpretHealth of this kind already"},
		{"there", "function InterpretHealth(o)\n return o. end", customizations.Resource, "luaScript: Invalid value: line 2: syntax error near"},
		{"there", "not lua", "foos", ""},
	} {
		u := customizationNamed(c.name, c.lua)
		gvk := u.GroupVersionKind()
		err := plugin.Validate(t.Context(), admission.NewAttributesRecord(u, nil, gvk, "", c.name,
			gvk.GroupVersion().WithResource(c.resource), "", admission.Create, nil, false, nil), nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
