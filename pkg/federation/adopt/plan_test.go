package adopt

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

func object(t testing.TB, doc string) *unstructured.Unstructured {
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

const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: d, uid: u, resourceVersion: "1", generation: 3,
  annotations: {deployment.kubernetes.io/revision: "2", kubectl.kubernetes.io/last-applied-configuration: "{}"}},
  spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
    {name: c, image: i:1, env: [{name: A, value: "1"}, {name: B, value: "2"}]}, {name: sidecar, image: s}]}}}, status: {replicas: 3}}`

func TestMakeOne(t *testing.T) {
	p, err := Make([]Copy{{"m1", object(t, web)}})
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: d,
	  annotations: {work.karmada.io/conflict-resolution: overwrite, kubectl.kubernetes.io/last-applied-configuration: "{}"}},
	  spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [
	    {name: c, image: i:1, env: [{name: A, value: "1"}, {name: B, value: "2"}]}, {name: sidecar, image: s}]}}}}`)
	if diff := cmp.Diff(want.Object, p.Template.Object); diff != "" {
		t.Error(diff)
	}
	propagation, override := p.Policies()
	pp, ok := propagation.(*policyv1alpha1.PropagationPolicy)
	if !ok || override != nil {
		t.Fatalf("%T %v", propagation, override)
	}
	if pp.Name != "adopted-deployment-web" || pp.Namespace != "d" || pp.Spec.ConflictResolution != "Overwrite" ||
		pp.Spec.ResourceSelectors[0].Name != "web" || pp.Spec.Placement.ReplicaScheduling != nil ||
		cmp.Diff([]string{"m1"}, pp.Spec.Placement.ClusterAffinity.ClusterNames) != "" {
		t.Errorf("%+v", pp)
	}
}

func TestMakeTwo(t *testing.T) {
	other := strings.NewReplacer("replicas: 3, selector", "replicas: 2, selector", `{name: A, value: "1"}`, `{name: A, value: "9"}`,
		"generation: 3", "generation: 1, labels: {site: two}").Replace(web)
	p, err := Make([]Copy{{"m1", object(t, web)}, {"m2", object(t, other)}})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(p.Template.Object, "spec", "replicas"); n != 5 {
		t.Errorf("%d replicas", n)
	}
	if diff := cmp.Diff(map[string]int32{"m1": 3, "m2": 2}, p.Replicas); diff != "" {
		t.Error(diff)
	}
	var ops []string
	for _, o := range p.Overrides["m2"] {
		ops = append(ops, string(o.Operator)+" "+o.Path+" "+string(o.Value.Raw))
	}
	want := []string{`add /metadata/labels {"site":"two"}`, `replace /spec/template/spec/containers/0/env/0/value "9"`}
	if diff := cmp.Diff(want, ops); diff != "" || len(p.Overrides) != 1 {
		t.Error(diff, p.Overrides)
	}
	for cluster, doc := range map[string]string{"m1": web, "m2": other} {
		rendered, err := Rendered(object(t, doc))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.For(cluster)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rendered.Object, got.Object); diff != "" {
			t.Errorf("%s is told something else than it has: %s", cluster, diff)
		}
	}
	propagation, override := p.Policies()
	weights := propagation.(*policyv1alpha1.PropagationPolicy).Spec.Placement.ReplicaScheduling.WeightPreference.StaticWeightList
	if len(weights) != 2 || weights[0].Weight != 3 || weights[1].Weight != 2 {
		t.Errorf("weights %v", weights)
	}
	if op := override.(*policyv1alpha1.OverridePolicy); len(op.Spec.OverrideRules) != 1 || op.Spec.OverrideRules[0].TargetCluster.ClusterNames[0] != "m2" {
		t.Errorf("%+v", op)
	}
}

func TestMakeRefuses(t *testing.T) {
	many := func(prefix string) string {
		var b strings.Builder
		b.WriteString(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: d}, data: {`)
		for i := range 130 {
			b.WriteString(prefix + strings.Repeat("x", i) + `: "1", `)
		}
		b.WriteString(`}}`)
		return b.String()
	}
	for name, c := range map[string]struct{ one, two, says string }{
		"selector":         {web, strings.Replace(web, "selector: {matchLabels: {app: web}}", "selector: {matchLabels: {app: other}}", 1), `spec.selector.matchLabels.app: "web" -> "other"`},
		"no share":         {web, strings.Replace(web, "replicas: 3, selector", "replicas: 0, selector", 1), "spec.replicas is 0 in m2"},
		"type of a Secret": {`{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: s}}`, `{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: s}}`, `type: "Opaque" -> "kubernetes.io/tls"`},
		"a secret value":   {`{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: eA==, b: eA==}}`, `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: eQ==, b: eA==}}`, `differ in data.a: an override policy is no place`},
		"too much":         {many("a"), many("b"), "differ in 260 fields"},
	} {
		_, err := Make([]Copy{{"m1", object(t, c.one)}, {"m2", object(t, c.two)}})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Make(nil); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	zero := strings.Replace(web, "replicas: 3, selector", "replicas: 0, selector", 1)
	if _, err := Make([]Copy{{"m1", object(t, zero)}, {"m2", object(t, zero)}}); err != nil {
		t.Errorf("scaled to zero everywhere: %v", err)
	}
}

func TestTemplateKeepsTheTTLOfAJob(t *testing.T) {
	u, err := Template(object(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {ttlSecondsAfterFinished: 5, selector: {matchLabels: {controller-uid: u}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"ttlSecondsAfterFinished": int64(5)}, u.Object["spec"]); diff != "" {
		t.Error(diff)
	}
}

func TestJudge(t *testing.T) {
	live := object(t, web)
	for name, c := range map[string]struct{ from, to, says string }{
		"nothing":    {"i:1", "i:1", ""},
		"replicas":   {"replicas: 3, selector", "replicas: 5, selector", ""},
		"image":      {"i:1", "i:2", `spec.template.spec.containers[name=c].image: "i:1" -> "i:2"`},
		"a label":    {"labels: {app: web}", "labels: {app: web, x: z}", `spec.template.metadata.labels.x: added "z"`},
		"env gone":   {`, {name: B, value: "2"}`, "", `spec.template.spec.containers[name=c].env[name=B]: removed {"name":"B","value":"2"}`},
		"other note": {"generation: 3", "generation: 3, labels: {a: b}", ""},
	} {
		err := Judge(live, object(t, strings.Replace(web, c.from, c.to, 1)))
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, b := object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}`), object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`)
	if err := Judge(a, b); err != nil {
		t.Errorf("a kind without Pods: %v", err)
	}
}

func TestForeign(t *testing.T) {
	key := marks.Key{Namespace: "d", Name: "c"}
	key.Version, key.Kind = "v1", "ConfigMap"
	marked := func(name, id string) *unstructured.Unstructured {
		return object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {isthmus.dev/managed: "true"}, annotations: {isthmus.dev/control-plane: "`+id+`", isthmus.dev/template: core/v1/ConfigMap/d/`+name+`}}}`)
	}
	for id, want := range map[string]bool{"us": false, "them": true, "": false} {
		if _, got := Foreign("us", key, marked("c", id)); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
	if _, got := Foreign("us", key, marked("clone", "them")); got {
		t.Error("an inherited mark counts")
	}
}

func TestDescribeIsBounded(t *testing.T) {
	var all []Change
	for range 50 {
		all = append(all, Change{Path: "a.b", From: "x", To: strings.Repeat("é", 300)})
	}
	s := Describe(all, 500)
	if len(s) > 540 || !strings.Contains(s, "more") {
		t.Errorf("%d: %s", len(s), s)
	}
}

// A patch between any two objects makes one of the other.
func TestPatchMakesEqual(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			switch n := rapid.IntRange(0, 5).Draw(t, "shape"); {
			case n == 0 && depth > 0:
				return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
			case n <= 2 && depth > 0:
				return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b/c", "d~e", "f"}), value(depth-1), 0, 4).Draw(t, "map")
			case n == 3:
				return int64(rapid.IntRange(0, 3).Draw(t, "number"))
			default:
				return rapid.SampledFrom([]string{"x", "y"}).Draw(t, "text")
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		top := rapid.MapOfN(rapid.SampledFrom([]string{"spec", "data"}), value(3), 0, 2)
		build := func(content map[string]any) map[string]any {
			out := map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "n", "namespace": "d"}}
			maps.Copy(out, content)
			return out
		}
		from, to := build(top.Draw(t, "from")), build(top.Draw(t, "to"))
		ops, err := Patch(from, to)
		if err != nil {
			t.Fatal(err)
		}
		p := &Plan{Template: &unstructured.Unstructured{Object: from}, Overrides: map[string][]policyv1alpha1.PlaintextOverrider{"m": ops}}
		got, err := p.For("m")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(to, got.Object); diff != "" {
			t.Fatalf("%v: %s", ops, diff)
		}
		if same := len(Diff(from, to)) == 0; same != (len(ops) == 0) {
			t.Fatalf("diff and patch disagree: %v %v", Diff(from, to), ops)
		}
	})
}
