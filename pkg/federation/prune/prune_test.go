package prune

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var (
	deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	statefuls  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}
	crd        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	hpa        = schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	widget     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

// The documents are those that kube-apiserver v1.37 publishes, cut down to some
// kinds and to what is read of them.
func load(t testing.TB, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// older takes fields out of a document, as if they had not been invented yet.
func older(t testing.TB, raw []byte, fields ...string) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	schemas, _, _ := unstructured.NestedMap(doc, "components", "schemas")
	for _, f := range fields {
		kind, field, _ := strings.Cut(f, ":")
		s, ok := schemas[kind].(map[string]any)
		if !ok || s["properties"].(map[string]any)[field] == nil {
			t.Fatalf("no %s in the document", f)
		}
		delete(s["properties"].(map[string]any), field)
	}
	doc["components"].(map[string]any)["schemas"] = schemas
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tree(t testing.TB, raw []byte, gvk schema.GroupVersionKind) *Node {
	t.Helper()
	d := NewDocument()
	if err := d.Add(raw, gvk); err != nil {
		t.Fatal(err)
	}
	return d.Kind(gvk)
}

func object(t testing.TB, doc string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {any.thing/at: all}, unheardOf: x}, spec: {replicas: 1, strategy: {rollingUpdate: {maxSurge: 25%}},
  selector: {matchLabels: {a.b/c: d}}, template: {metadata: {labels: {a.b/c: d}}, spec: {
    hostnameOverride: x, nodeSelector: {x: z}, tolerations: [{key: k, operator: Exists}],
    volumes: [{name: v, configMap: {name: c, items: [{key: k, path: p}]}}, {name: e, emptyDir: {}}],
    initContainers: [{name: i, image: i, restartPolicy: Always, restartPolicyRules: [{action: Restart}]}],
    containers: [{name: c, image: i, resources: {limits: {cpu: "1", example.com/gpu: "2"}}, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}],
      livenessProbe: {httpGet: {port: 80, path: /}}, securityContext: {capabilities: {drop: [ALL]}}}]}}}}`

func TestKnownFieldsStay(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		gvk  schema.GroupVersionKind
		doc  string
	}{
		"Deployment": {"apps_v1.json", deployment, web},
		"HorizontalPodAutoscaler": {"autoscaling_v2.json", hpa, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3,
		  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}],
		  behavior: {scaleDown: {tolerance: 0.1, policies: [{type: Pods, value: 1, periodSeconds: 5}]}}}}`},
		"CustomResourceDefinition": {"apiextensions_v1.json", crd, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: w}, spec: {group: g,
		  versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, default: {a: {b: c}}, x-kubernetes-preserve-unknown-fields: true,
		    properties: {deep: {items: {type: object, additionalProperties: {type: string, enum: [a, 1]}}}}, x-kubernetes-validations: [{rule: r}]}}}}}]}}`},
	} {
		obj, want := object(t, c.doc), object(t, c.doc)
		if dropped := Prune(obj, tree(t, load(t, c.file), c.gvk)); len(dropped) > 0 {
			t.Errorf("%s: dropped %v", name, dropped)
		}
		if diff := cmp.Diff(want, obj); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOlderServer(t *testing.T) {
	raw := older(t, load(t, "apps_v1.json"), "io.k8s.api.core.v1.PodSpec:hostnameOverride", "io.k8s.api.core.v1.Container:restartPolicyRules",
		"io.k8s.api.core.v1.ConfigMapVolumeSource:items")
	obj := object(t, web)
	dropped := Prune(obj, tree(t, raw, deployment))
	want := []string{"spec.template.spec.hostnameOverride", "spec.template.spec.initContainers[].restartPolicyRules", "spec.template.spec.volumes[].configMap.items"}
	if diff := cmp.Diff(want, dropped); diff != "" {
		t.Error(diff)
	}
	expected := object(t, strings.NewReplacer("hostnameOverride: x, ", "", ", restartPolicyRules: [{action: Restart}]", "", ", items: [{key: k, path: p}]", "").Replace(web))
	if diff := cmp.Diff(expected, obj); diff != "" {
		t.Error(diff)
	}
	obj = object(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {behavior: {scaleDown: {tolerance: 0.1, selectPolicy: Max}}}}`)
	raw = older(t, load(t, "autoscaling_v2.json"), "io.k8s.api.autoscaling.v2.HPAScalingRules:tolerance")
	if dropped = Prune(obj, tree(t, raw, hpa)); cmp.Diff([]string{"spec.behavior.scaleDown.tolerance"}, dropped) != "" {
		t.Error(dropped)
	}
}

const widgets = `{"components":{"schemas":{"com.example.v1.Widget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Widget"}],
  "properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
  "spec":{"type":"object","properties":{
    "size":{"type":"integer"},
    "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
    "half":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"known":{"type":"object","properties":{"a":{"type":"string"}}}}},
    "empty":{"type":"object"},
    "map":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"string"}}}},
    "anyMap":{"type":"object","additionalProperties":true},
    "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}},
    "port":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]},
    "embedded":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}}}}}
  }}}},
  "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"type":"object","properties":{"name":{"type":"string"}}}}}}`

func TestCustomResources(t *testing.T) {
	n := tree(t, []byte(widgets), widget)
	obj := object(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, labels: {a: b}}, extra: 1, spec: {size: 1, colour: red, port: 5,
	  free: {any: {thing: 1}}, half: {other: {x: 1}, known: {a: x, b: x}}, empty: {x: 1}, map: {k: {a: x, b: x}}, anyMap: {k: {a: x}}, list: [{a: x}, {b: x}],
	  embedded: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {a: x, b: x}, other: 1}}}`)
	dropped := Prune(obj, n)
	want := []string{"extra", "spec.colour", "spec.embedded.other", "spec.embedded.spec.b", "spec.empty.x", "spec.half.known.b", "spec.list[].b", "spec.map.k.b"}
	if diff := cmp.Diff(want, dropped); diff != "" {
		t.Error(diff)
	}
	left := object(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, labels: {a: b}}, spec: {size: 1, port: 5,
	  free: {any: {thing: 1}}, half: {other: {x: 1}, known: {a: x}}, empty: {}, map: {k: {a: x}}, anyMap: {k: {a: x}}, list: [{a: x}, {}],
	  embedded: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {a: x}}}}`)
	if diff := cmp.Diff(left, obj); diff != "" {
		t.Error(diff)
	}
}

func TestBadDocuments(t *testing.T) {
	d := NewDocument()
	if err := d.Add([]byte(widgets), deployment); !errors.Is(err, ErrUnknownKind) || d.Kind(deployment) != nil {
		t.Error(err)
	}
	for _, raw := range []string{"", "<html>", `{"components":{"schemas":{"x":null}}}`, `{"components":[]}`} {
		if err := d.Add([]byte(raw), widget); err == nil {
			t.Errorf("%q is accepted", raw)
		}
	}
	loop := `{"components":{"schemas":{"a":{"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Widget"}],"type":"object","properties":{"spec":{"$ref":"#/components/schemas/a"},"lost":{"$ref":"#/components/schemas/none"}}}}}}`
	obj := object(t, `{apiVersion: example.com/v1, kind: Widget, spec: {spec: {spec: {x: 1, lost: {y: 2}}}}}`)
	if dropped := Prune(obj, tree(t, []byte(loop), widget)); cmp.Diff([]string{"spec.spec.spec.x"}, dropped) != "" {
		t.Error(dropped)
	}
	if dropped := Prune(obj, nil); dropped != nil {
		t.Error("without a tree something is dropped")
	}
}

// Kinds of one document share what they have in common, and a tree is small.
func TestTreesAreShared(t *testing.T) {
	d, raw := NewDocument(), load(t, "apps_v1.json")
	if err := d.Add(raw, deployment); err != nil {
		t.Fatal(err)
	}
	one := len(d.named)
	if err := d.Add(raw, statefuls); err != nil {
		t.Fatal(err)
	}
	if more := len(d.named) - one; more > 20 {
		t.Errorf("a second kind takes %d named nodes beside %d", more, one)
	}
	fields := 0
	for _, n := range d.named {
		fields += len(n.fields)
	}
	if fields > 1500 {
		t.Errorf("%d fields", fields)
	}
}

// Whatever is asked for: what is left is known, pruning again finds nothing, and
// only what was named is gone.
func TestPruneProperties(t *testing.T) {
	n := tree(t, []byte(widgets), widget)
	names := []string{"size", "free", "half", "known", "empty", "map", "list", "a", "b", "embedded", "spec", "anyMap"}
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			switch k := rapid.IntRange(0, 3).Draw(t, "shape"); {
			case depth > 0 && k == 0:
				return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
			case depth > 0:
				return rapid.MapOfN(rapid.SampledFrom(names), value(depth-1), 0, 5).Draw(t, "map")
			}
			return "x"
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		obj := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": value(2).Draw(t, "metadata"), "spec": value(4).Draw(t, "spec")}
		before := (&unstructured.Unstructured{Object: obj}).DeepCopy().Object
		dropped := Prune(obj, n)
		if again := Prune(obj, n); len(again) > 0 {
			t.Fatalf("pruned again: %v", again)
		}
		if diff := cmp.Diff(before["metadata"], obj["metadata"]); diff != "" {
			t.Fatal(diff)
		}
		if len(dropped) == 0 != (cmp.Diff(before, obj) == "") {
			t.Fatalf("told %v: %s", dropped, cmp.Diff(before, obj))
		}
		if !slices.IsSorted(dropped) || len(slices.Compact(slices.Clone(dropped))) != len(dropped) {
			t.Fatalf("%v", dropped)
		}
	})
}

func TestDescribe(t *testing.T) {
	if got := Describe([]string{"a", "b", "c"}, 2); got != "a, b, ..." {
		t.Error(got)
	}
	if got := Describe(slices.Sorted(maps.Keys(map[string]int{"a": 1})), 2); got != "a" {
		t.Error(got)
	}
}
