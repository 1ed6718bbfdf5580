package override

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: d, labels: {app: web}},
  spec: {replicas: 3, template: {metadata: {labels: {app: web}}, spec: {
    initContainers: [{name: i, image: "docker.io/init@sha256:aa"}],
    containers: [{name: c, image: "nginx:1.2", args: [a, b]}, {name: s, image: "reg.example.com:5000/team/side"}]}}}}`

func decode(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

func policy(t *testing.T, ns, name, spec string) Policy {
	t.Helper()
	p := Policy{Namespace: ns, Name: name}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func reference(u *unstructured.Unstructured) placement.Template {
	return placement.Template{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Labels: u.GetLabels()}
}

func applyAll(t *testing.T, u *unstructured.Unstructured, cluster string, policies ...Policy) error {
	t.Helper()
	ix, errs := NewIndex(policies)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return ix.For(reference(u)).Apply(u, &placement.Cluster{Name: cluster})
}

func TestOverriders(t *testing.T) {
	const head = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]\noverrideRules:\n- targetCluster: {clusterNames: [m2]}\n  overriders: "
	for name, c := range map[string]struct {
		overriders string
		path       []string
		want       any
	}{
		"plaintext":   {`{plaintext: [{path: /spec/replicas, operator: replace, value: 1}]}`, []string{"spec", "replicas"}, int64(1)},
		"add labels":  {`{labelsOverrider: [{operator: add, value: {tier: edge}}]}`, []string{"metadata", "labels"}, map[string]any{"app": "web", "tier": "edge"}},
		"replace one": {`{labelsOverrider: [{operator: replace, value: {app: x, no: y}}]}`, []string{"metadata", "labels"}, map[string]any{"app": "x"}},
		"remove one":  {`{labelsOverrider: [{operator: remove, value: {app: ""}}]}`, []string{"metadata", "labels"}, map[string]any{}},
		"annotations": {`{annotationsOverrider: [{operator: add, value: {a: b}}]}`, []string{"metadata", "annotations"}, map[string]any{"a": "b"}},
		"in order":    {`{labelsOverrider: [{operator: add, value: {x: "1"}}], plaintext: [{path: /metadata/labels/x, operator: replace, value: "2"}]}`, []string{"metadata", "labels"}, map[string]any{"app": "web", "x": "2"}},
	} {
		p := policy(t, "d", "p", head+c.overriders)
		u := decode(t, deployment)
		if err := applyAll(t, u, "m2", p); err != nil {
			t.Fatal(name, err)
		}
		got, _, err := unstructured.NestedFieldNoCopy(u.Object, c.path...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		elsewhere := decode(t, deployment)
		if err := applyAll(t, elsewhere, "m1", p); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decode(t, deployment).Object, elsewhere.Object); diff != "" {
			t.Errorf("%s: changes another cluster: %s", name, diff)
		}
	}
}

func TestContainers(t *testing.T) {
	u := decode(t, deployment)
	err := applyAll(t, u, "m1", policy(t, "d", "p", `
overrideRules:
- overriders:
    imageOverrider:
    - {component: Registry, operator: replace, value: mirror.local}
    - {predicate: {path: /spec/template/spec/containers/0/image}, component: Tag, operator: replace, value: "2"}
    argsOverrider:
    - {containerName: c, operator: add, value: [z]}
    - {containerName: c, operator: remove, value: [a]}
    commandOverrider:
    - {containerName: s, operator: add, value: [run]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	if err := containers(u.Object, func(c map[string]any) error {
		got = append(got, c["image"], c["args"], c["command"])
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []any{
		"mirror.local/init@sha256:aa", nil, nil,
		"mirror.local/nginx:2",
		[]any{"b", "z"},
		nil,
		"mirror.local/team/side", nil,
		[]any{"run"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOrder(t *testing.T) {
	set := func(ns, name, selector, value string) Policy {
		return policy(t, ns, name, selector+"\noverrideRules: [{overriders: {annotationsOverrider: [{operator: add, value: {by: "+value+"}}]}}]")
	}
	byName := "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]"
	byLabel := "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchLabels: {app: web}}}]"
	byKind := "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]"
	for name, c := range map[string]struct {
		policies []Policy
		want     string
	}{
		"the namespace has the last word": {[]Policy{set("d", "a", byKind, "namespace"), set("", "z", byName, "cluster")}, "namespace"},
		"the name beats the label":        {[]Policy{set("d", "a", byName, "name"), set("d", "z", byLabel, "label")}, "name"},
		"the label beats the kind":        {[]Policy{set("d", "a", byLabel, "label"), set("d", "z", byKind, "kind")}, "label"},
		"the kind beats everything":       {[]Policy{set("d", "a", byKind, "kind"), set("d", "z", "", "all")}, "kind"},
		"the later name wins":             {[]Policy{set("d", "b", byKind, "b"), set("d", "a", byKind, "a")}, "b"},
		"another namespace has no say":    {[]Policy{set("d", "a", "", "own"), set("e", "z", "", "other")}, "own"},
		"another kind has no say":         {[]Policy{set("d", "a", "", "own"), set("d", "z", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]", "other")}, "own"},
	} {
		u := decode(t, deployment)
		if err := applyAll(t, u, "m1", c.policies...); err != nil {
			t.Fatal(err)
		}
		if got := u.GetAnnotations()["by"]; got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		overriders, says string
		is               error
	}{
		"a path that is not there":   {`{plaintext: [{path: /data/a, operator: replace, value: 1}]}`, "p: overrideRules[0]", nil},
		"another name":               {`{plaintext: [{path: /metadata/name, operator: replace, value: x}]}`, "", ErrIdentity},
		"another kind":               {`{plaintext: [{path: /kind, operator: replace, value: Pod}]}`, "", ErrIdentity},
		"no metadata":                {`{plaintext: [{path: /metadata, operator: remove}]}`, "", ErrIdentity},
		"an image that is not there": {`{imageOverrider: [{predicate: {path: /spec/template/spec/containers/7/image}, component: Tag, operator: add, value: x}]}`, "no item", nil},
		"nothing left of an image":   {`{imageOverrider: [{component: Repository, operator: remove}]}`, "nothing is left", nil},
	} {
		u := decode(t, deployment)
		err := applyAll(t, u, "m1", policy(t, "d", "p", "overrideRules: [{overriders: "+c.overriders+"}]"))
		if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzImage(f *testing.F) {
	for _, s := range []string{"nginx", "a/b:c@sha256:d", "localhost/x", "h:5000/x:1", "@", ":", "//", ""} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		if got := parseImage(s).String(); strings.Count(s, "@") <= 1 && !strings.HasSuffix(s, ":") && !strings.HasSuffix(s, "@") && !strings.Contains(s, ":@") && got != s {
			t.Errorf("%q became %q", s, got)
		}
		for _, component := range []string{"Registry", "Repository", "Tag"} {
			_, _ = changeImage(s, policyv1alpha1.ImageOverrider{Component: component, Operator: "replace", Value: value})
		}
	})
}
