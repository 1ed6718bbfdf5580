package override

import (
	"encoding/base64"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

func TestDocumentsInStrings(t *testing.T) {
	const config = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {"app.yaml": "a: {b: 1}\nlist: [x]\n", "app.json": "{\"a\": 1}", "a/b": "k: v"}}`
	secret := `{apiVersion: v1, kind: Secret, metadata: {name: c}, data: {"app.json": "` + base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)) + `"}}`
	for name, c := range map[string]struct{ object, overrider, key, want, err string }{
		"yaml":                 {config, `{fieldPath: /data/app.yaml, yaml: [{subPath: /a/b, operator: replace, value: 2}, {subPath: /list/-, operator: add, value: z}]}`, "app.yaml", "a:\n  b: 2\nlist:\n- x\n- z\n", ""},
		"json":                 {config, `{fieldPath: /data/app.json, json: [{subPath: /a, operator: remove}, {subPath: /n, operator: add}]}`, "app.json", `{"n":null}`, ""},
		"an escaped key":       {config, `{fieldPath: /data/a~1b, yaml: [{subPath: /k, operator: replace, value: w}]}`, "a/b", "k: w\n", ""},
		"nothing to do":        {config, `{fieldPath: /data/app.json}`, "app.json", `{"a": 1}`, ""},
		"the data of a Secret": {secret, `{fieldPath: /data/app.json, json: [{subPath: /a, operator: replace, value: 2}]}`, "app.json", base64.StdEncoding.EncodeToString([]byte(`{"a":2}`)), ""},
		"no such field":        {config, `{fieldPath: /data/none, yaml: [{subPath: /a, operator: remove}]}`, "", "", "/data/none"},
		"no such path":         {config, `{fieldPath: /data/app.json, json: [{subPath: /z, operator: remove}]}`, "", "", "/data/app.json"},
		"no document":          {config, `{fieldPath: /data/a~1b, json: [{subPath: /k, operator: remove}]}`, "", "", "/data/a~1b"},
	} {
		u := &unstructured.Unstructured{}
		var o policyv1alpha1.FieldOverrider
		if err := yaml.Unmarshal([]byte(c.object), &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict([]byte(c.overrider), &o); err != nil {
			t.Fatal(err)
		}
		err := apply(u, policyv1alpha1.Overriders{FieldOverrider: []policyv1alpha1.FieldOverrider{o}})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		if err != nil || data[c.key] != c.want {
			t.Errorf("%s: %q %v", name, data[c.key], err)
		}
	}
}

// A policy over everything leaves alone what gives rights; the form before there
// was a list of rules is one more rule, the first.
func TestWhatIsReached(t *testing.T) {
	label := func(v string) policyv1alpha1.Overriders {
		return policyv1alpha1.Overriders{LabelsOverrider: []policyv1alpha1.LabelAnnotationOverrider{{Operator: policyv1alpha1.OverriderAdd, Value: map[string]string{"by": v}}}}
	}
	first, role := label("first"), policyv1alpha1.ResourceSelector{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}
	ix, errs := NewIndex([]Policy{
		{Namespace: "d", Name: "all", Spec: policyv1alpha1.OverrideSpec{Overriders: &first}},
		{Namespace: "d", Name: "roles", Spec: policyv1alpha1.OverrideSpec{ResourceSelectors: []policyv1alpha1.ResourceSelector{role}, OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: label("roles")}}}},
		{Name: "both", Spec: policyv1alpha1.OverrideSpec{ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "v1", Kind: "Secret"}}, Overriders: &first, OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: label("second")}}}},
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, c := range []struct{ apiVersion, kind, namespace, want string }{
		{"v1", "ConfigMap", "d", "first"},
		{"v1", "ConfigMap", "e", ""},
		{"rbac.authorization.k8s.io/v1", "Role", "d", "roles"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", "d", ""},
		{"v1", "Secret", "e", "second"},
		{"v1", "Secret", "d", "first"}, // the namespace's own has the last word
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": c.apiVersion, "kind": c.kind, "metadata": map[string]any{"name": "x", "namespace": c.namespace}}}
		rules := ix.For(placement.Template{APIVersion: c.apiVersion, Kind: c.kind, Namespace: c.namespace, Name: "x"})
		if err := rules.Apply(u, &placement.Cluster{Name: "m1"}); err != nil || u.GetLabels()["by"] != c.want {
			t.Errorf("%s in %s: %v %v", c.kind, c.namespace, u.GetLabels(), err)
		}
	}
	ix.Drop("d", "all")
	if rules := ix.For(placement.Template{APIVersion: "v1", Kind: "ConfigMap", Namespace: "d", Name: "x"}); !rules.Empty() || ix.Has("d", "all") {
		t.Error("a policy that is gone still acts")
	}
}
