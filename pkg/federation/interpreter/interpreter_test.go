package interpreter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/config/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter/sandbox"
)

// object reads YAML as the engine's decoder does: integers are int64.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	raw := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatal(err)
	}
	out, _ := integers(raw).(map[string]any)
	return out
}

func integers(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = integers(e)
		}
	case []any:
		for i, e := range x {
			x[i] = integers(e)
		}
	case float64:
		if x == float64(int64(x)) {
			return int64(x)
		}
	}
	return v
}

func read(t *testing.T, file string) *Customization {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	c := &Customization{}
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func loaded(t *testing.T, files ...string) *Interpreter {
	t.Helper()
	i, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []*Customization
	for _, f := range files {
		list = append(list, read(t, f))
	}
	if _, errs := i.Load(t.Context(), list); len(errs) > 0 {
		t.Fatal(errs)
	}
	return i
}

func kindOf(o map[string]any) schema.GroupVersionKind {
	apiVersion, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

const podTemplate = `
    spec:
      serviceAccountName: runner
      nodeSelector: {disk: ssd}
      containers:
      - name: main
        image: nginx
        resources: {requests: {cpu: 250m, memory: 64Mi}}
        envFrom: [{configMapRef: {name: settings}}]
      volumes: [{name: v, secret: {secretName: cert}}]
`

func workload(apiVersion, kind, spec string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: web, namespace: shop, generation: 3}\nspec:\n" + spec
}

// Workloads with replicas and a Pod template: counted, divided, summed up.
func TestWorkloads(t *testing.T) {
	for _, c := range []struct{ apiVersion, kind, field, revision string }{
		{"apps.kruise.io/v1alpha1", "CloneSet", "updatedAvailableReplicas", "updateRevision"},
		{"apps.kruise.io/v1beta1", "StatefulSet", "currentReplicas", "updateRevision"},
		{"apps.kruise.io/v1alpha1", "StatefulSet", "currentReplicas", "updateRevision"},
		{"argoproj.io/v1alpha1", "Rollout", "HPAReplicas", "currentPodHash"},
	} {
		t.Run(c.kind+c.apiVersion, func(t *testing.T) {
			i := loaded(t)
			o := object(t, workload(c.apiVersion, c.kind, "  replicas: 6\n  template:"+podTemplate))
			gvk := kindOf(o)
			if !i.Divides(gvk) {
				t.Fatal("not divided")
			}
			n, req, err := i.Replicas(t.Context(), gvk, o)
			if err != nil || n != 6 || req == nil || req.Request.Cpu().String() != "250m" || req.Request.Memory().String() != "64Mi" || req.Request.Pods().Value() != 1 {
				t.Fatalf("replicas %d, %+v, %v", n, req, err)
			}
			revised, err := i.Revise(t.Context(), gvk, o, 2)
			if err != nil || revised["spec"].(map[string]any)["replicas"] != int64(2) || revised["spec"].(map[string]any)["template"] == nil {
				t.Fatalf("revised: %v, %v", revised, err)
			}
			refs, err := i.Dependencies(t.Context(), gvk, o)
			want := []dependencies.Ref{
				{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings"},
				{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: "cert"},
				{APIVersion: "v1", Kind: "ServiceAccount", Namespace: "shop", Name: "runner"},
			}
			if err != nil || !reflect.DeepEqual(refs, want) {
				t.Fatalf("dependencies: %v, %v", refs, err)
			}
			status, err := i.Aggregate(t.Context(), gvk, o, []StatusItem{
				{Cluster: "m1", Status: object(t, "{replicas: 2, "+c.field+": 1, "+c.revision+": abc}")},
				{Cluster: "m2", Status: object(t, "{replicas: 4, "+c.field+": 3}")},
				{Cluster: "m3"},
			})
			if err != nil || status["replicas"] != int64(6) || status[c.field] != int64(4) || status[c.revision] != "abc" {
				t.Fatalf("status: %v, %v", status, err)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	i := loaded(t, "volcano_job.yaml", "flink_deployment.yaml", "kyverno_policy.yaml", "deployment.yaml")
	for _, c := range []struct {
		name, object, want string
	}{
		{"rollout, healthy", workload("argoproj.io/v1alpha1", "Rollout", "  {}\nstatus: {observedGeneration: '3', phase: Healthy}"), Healthy},
		{"rollout, behind", workload("argoproj.io/v1alpha1", "Rollout", "  {}\nstatus: {observedGeneration: '2', phase: Healthy}"), Unhealthy},
		{"rollout, degraded", workload("argoproj.io/v1alpha1", "Rollout", "  {}\nstatus: {observedGeneration: '3', phase: Degraded}"), Unhealthy},
		{"workflow, running", workload("argoproj.io/v1alpha1", "Workflow", "  {}\nstatus: {phase: Running}"), Healthy},
		{"workflow, failed", workload("argoproj.io/v1alpha1", "Workflow", "  {}\nstatus: {phase: Error}"), Unhealthy},
		{"workflow, no status", workload("argoproj.io/v1alpha1", "Workflow", "  {}"), Unhealthy},
		{"cloneset", workload("apps.kruise.io/v1alpha1", "CloneSet", "  {replicas: 2}\nstatus: {observedGeneration: 3, availableReplicas: 2, updatedReplicas: 2}"), Healthy},
		{"cloneset, on the way", workload("apps.kruise.io/v1alpha1", "CloneSet", "  {replicas: 2}\nstatus: {observedGeneration: 3, availableReplicas: 2, updatedReplicas: 1}"), Unhealthy},
		{"cloneset, partition", workload("apps.kruise.io/v1alpha1", "CloneSet", "  {replicas: 2, updateStrategy: {partition: 1}}\nstatus: {observedGeneration: 3, availableReplicas: 2, updatedReplicas: 1}"), Healthy},
		{"advanced statefulset", workload("apps.kruise.io/v1beta1", "StatefulSet", "  {replicas: 2, updateStrategy: {rollingUpdate: {partition: 2}}}\nstatus: {observedGeneration: 3, availableReplicas: 2}"), Healthy},
		{"kustomization", workload("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "  {}\nstatus: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}]}"), Healthy},
		{"kustomization, stalled", workload("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "  {}\nstatus: {observedGeneration: 3, conditions: [{type: Ready, status: 'False'}]}"), Unhealthy},
		{"helm release, no condition", workload("helm.toolkit.fluxcd.io/v2", "HelmRelease", "  {}\nstatus: {observedGeneration: 3, conditions: []}"), Unhealthy},
		{"git repository", workload("source.toolkit.fluxcd.io/v1", "GitRepository", "  {}\nstatus: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}]}"), Healthy},
		{"volcano job", workload("batch.volcano.sh/v1alpha1", "Job", "  {}\nstatus: {state: {phase: Running}}"), Healthy},
		{"flink", workload("flink.apache.org/v1beta1", "FlinkDeployment", "  {}\nstatus: {jobStatus: {state: RUNNING}}"), Healthy},
		{"kyverno", workload("kyverno.io/v1", "ClusterPolicy", "  {}\nstatus: {ready: false}"), Unhealthy},
		{"a user precedes what is built in", workload("apps/v1", "Deployment", "  {replicas: 1}\nstatus: {readyReplicas: 1}"), Healthy},
		{"built in", workload("apps/v1", "StatefulSet", "  {replicas: 1}\nstatus: {readyReplicas: 1}"), Unhealthy},
		{"nobody knows", workload("example.com/v1", "Thing", "  {}\nstatus: {ready: true}"), Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := object(t, c.object)
			status, _ := o["status"].(map[string]any)
			got, err := i.Health(t.Context(), kindOf(o), o, status, Counts{Generation: 3, Replicas: 1})
			if err != nil || got != c.want {
				t.Fatalf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
	o := object(t, workload("batch.volcano.sh/v1alpha1", "Job", "  {}"))
	_, err := i.Health(t.Context(), kindOf(o), o, nil, Counts{})
	if want := "InterpretHealth of customization volcano-job: line 2: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestFluxStatus(t *testing.T) {
	i := loaded(t)
	o := object(t, workload("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "  {sourceRef: {kind: GitRepository, name: repo}}"))
	got, err := i.Aggregate(t.Context(), kindOf(o), o, []StatusItem{
		{Cluster: "m1", Status: object(t, "{lastAppliedRevision: main@1, conditions: [{type: Ready, status: 'True', reason: Succeeded, message: applied}]}")},
		{Cluster: "m2", Status: object(t, "{conditions: [{type: Ready, status: 'False', reason: BuildFailed, message: no such path}]}")},
	})
	want := object(t, "{observedGeneration: 3, lastAppliedRevision: main@1, conditions: [{type: Ready, status: 'False', reason: BuildFailed, message: 'm1: applied; m2: no such path', observedGeneration: 3}]}")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	refs, err := i.Dependencies(t.Context(), kindOf(o), o)
	if err != nil || !reflect.DeepEqual(refs, []dependencies.Ref{{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Namespace: "shop", Name: "repo"}}) {
		t.Fatalf("dependencies: %v, %v", refs, err)
	}
}

// Customizations in the ways that users write them.
func TestOfUsers(t *testing.T) {
	i := loaded(t, "volcano_job.yaml", "flink_deployment.yaml", "ray_cluster.yaml", "kyverno_policy.yaml", "deployment.yaml")
	job := object(t, workload("batch.volcano.sh/v1alpha1", "Job", "  tasks:\n  - replicas: 3\n    template:"+strings.ReplaceAll(podTemplate, "\n", "\n  ")))
	components, err := i.Components(t.Context(), kindOf(job), job)
	if err != nil || len(components) != 1 || components[0].Name != "task-0" || components[0].Replicas != 3 || components[0].Request.Cpu().String() != "250m" {
		t.Fatalf("components: %v, %v", components, err)
	}
	job["status"] = object(t, "{state: {phase: Running}, running: 2, version: 9}")
	reflected, err := i.Reflect(t.Context(), kindOf(job), job)
	if want := object(t, "{state: {phase: Running}, running: 2}"); err != nil || !reflect.DeepEqual(reflected, want) {
		t.Fatalf("reflected: %v, %v", reflected, err)
	}
	flink := object(t, workload("flink.apache.org/v1beta1", "FlinkDeployment", `
  flinkConfiguration: {taskmanager.numberOfTaskSlots: "2"}
  jobManager: {resource: {cpu: 1, memory: 2048m}}
  taskManager: {resource: {cpu: 2, memory: 1Gi}}
  job: {parallelism: 5}`))
	components, err = i.Components(t.Context(), kindOf(flink), flink)
	if err != nil || len(components) != 2 || components[1].Replicas != 3 || components[1].Request.Memory().Value() != 1<<30 || components[0].Request.Cpu().Value() != 1 {
		t.Fatalf("components: %+v, %v", components, err)
	}
	ray := object(t, workload("ray.io/v1", "RayCluster", "  workerGroupSpecs:\n  - replicas: 4\n    template:"+strings.ReplaceAll(podTemplate, "\n", "\n  ")))
	n, req, err := i.Replicas(t.Context(), kindOf(ray), ray)
	if err != nil || n != 4 || req.Request.Cpu().String() != "250m" {
		t.Fatalf("replicas: %d, %v, %v", n, req, err)
	}
	revised, err := i.Revise(t.Context(), kindOf(ray), ray, 1)
	if err != nil || revised["spec"].(map[string]any)["workerGroupSpecs"].([]any)[0].(map[string]any)["replicas"] != int64(1) {
		t.Fatalf("revised: %v, %v", revised, err)
	}
	policy := object(t, "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {}}")
	status, err := i.Aggregate(t.Context(), kindOf(policy), policy, []StatusItem{
		{Cluster: "m1", Status: object(t, "{rulecount: {validate: 2}, conditions: [{type: Ready, status: 'True', message: ok}]}")},
	})
	if want := object(t, "{rulecount: {validate: 2, generate: 0}, ready: true}"); err != nil || !reflect.DeepEqual(status, want) {
		t.Fatalf("status: %v, %v", status, err)
	}
	desired := object(t, workload("apps/v1", "Deployment", "  {replicas: 3}"))
	retained, err := i.RetainIn(t.Context(), kindOf(desired), desired, object(t, workload("apps/v1", "Deployment", "  {replicas: 5, paused: true}")))
	if err != nil || !reflect.DeepEqual(retained["spec"], object(t, "{replicas: 3, paused: true}")) {
		t.Fatalf("retained: %v, %v", retained, err)
	}
}

func custom(name string, created time.Time, scripts configv1alpha1.CustomizationRules) *Customization {
	return &Customization{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(created)},
		Spec: configv1alpha1.ResourceInterpreterCustomizationSpec{
			Target:         configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Foo"},
			Customizations: scripts,
		},
	}
}

func script(source string) *configv1alpha1.Script { return &configv1alpha1.Script{LuaScript: source} }

var fooKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}

// A result that is not what was asked for is an error, not a default.
func TestWrongResults(t *testing.T) {
	foo := object(t, "{apiVersion: example.com/v1, kind: Foo, metadata: {name: x}, spec: {}}")
	ask := map[string]func(context.Context, *Interpreter) error{
		"GetReplicas": func(ctx context.Context, i *Interpreter) error {
			_, _, err := i.Replicas(ctx, fooKind, foo)
			return err
		},
		"GetComponents": func(ctx context.Context, i *Interpreter) error { _, err := i.Components(ctx, fooKind, foo); return err },
		"ReviseReplica": func(ctx context.Context, i *Interpreter) error { _, err := i.Revise(ctx, fooKind, foo, 1); return err },
		"Retain": func(ctx context.Context, i *Interpreter) error {
			_, err := i.RetainIn(ctx, fooKind, foo, foo)
			return err
		},
		"ReflectStatus": func(ctx context.Context, i *Interpreter) error { _, err := i.Reflect(ctx, fooKind, foo); return err },
		"AggregateStatus": func(ctx context.Context, i *Interpreter) error {
			_, err := i.Aggregate(ctx, fooKind, foo, nil)
			return err
		},
		"InterpretHealth": func(ctx context.Context, i *Interpreter) error {
			_, err := i.Health(ctx, fooKind, foo, nil, Counts{})
			return err
		},
		"GetDependencies": func(ctx context.Context, i *Interpreter) error {
			_, err := i.Dependencies(ctx, fooKind, foo)
			return err
		},
	}
	for op, bodies := range map[string]map[string]string{
		"GetReplicas": {
			"return nil": "the first result is nil, not a number of replicas", "return -1": "the first result is -1, not a number of replicas",
			"return 1.5": "the first result is 1.5, not a number of replicas", "return '3'": `the first result is "3", not a number of replicas`,
			"return 2^40": "the first result is 1099511627776, not a number of replicas",
			"return 1, {resourceRequest={cpu='many'}}": "the second result: resourceRequest.cpu: quantity \"many\"", "return 1, 'x'": `the second result: "x" is no requirement`,
		},
		"GetComponents":   {"return 3": "the result is 3, not a list", "return {{name = 'a'}}": "item 1 has no name or no number of replicas"},
		"ReviseReplica":   {"return nil": "the result is nil, not an object", "a.metadata.name = 'y' return a": "the result is another object", "a.kind = nil return a": "the result is another object"},
		"Retain":          {"return": "the result is nil, not an object", "return {}": "the result is another object"},
		"ReflectStatus":   {"return 'fine'": `the result is "fine", not a status`},
		"AggregateStatus": {"return nil": "the result is nil, not an object", "a.status = 3 return a": "the status is 3"},
		"InterpretHealth": {"return 'yes'": `the result is "yes", not true or false`, "return nil": "the result is nil, not true or false"},
		"GetDependencies": {
			"return 'x'": `the result is "x", not a list`, "return {'x'}": `item 1: it is "x", not a reference`,
			"return {{kind='Secret', name='s'}}":                                             `item 1: apiVersion "" and kind "Secret" name no kind`,
			"return {{apiVersion='v1', kind='Secret'}}":                                      "item 1: a Secret without name and labelSelector",
			"return {{apiVersion='v1', kind='Secret', labelSelector={matchLabels={}}}}":      "item 1: a Secret without name and labelSelector",
			"return {{apiVersion='v1', kind='Secret', labelSelector={matchLabels={a='%'}}}}": "item 1: labelSelector",
		},
	} {
		for body, want := range bodies {
			t.Run(op+"/"+body, func(t *testing.T) {
				i := loaded(t)
				s := script("function " + op + "(a, b) " + body + " end")
				_, errs := i.Load(t.Context(), []*Customization{custom("c", time.Time{}, configv1alpha1.CustomizationRules{
					Retention: s, ReplicaResource: s, ComponentResource: s, ReplicaRevision: s, StatusReflection: s,
					StatusAggregation: s, HealthInterpretation: s, DependencyInterpretation: s,
				})})
				if len(errs) != 7 {
					t.Fatalf("the script defines one function: %v", errs)
				}
				err := ask[op](t.Context(), i)
				if err == nil || !strings.HasPrefix(err.Error(), op+" of customization c: "+want) {
					t.Fatalf("got %v, want %s", err, want)
				}
			})
		}
	}
}

func TestLoad(t *testing.T) {
	i := loaded(t)
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	health := func(word string) configv1alpha1.CustomizationRules {
		return configv1alpha1.CustomizationRules{HealthInterpretation: script("function InterpretHealth(o) return " + word + " end")}
	}
	changed, errs := i.Load(t.Context(), []*Customization{custom("a-late", second, health("false")), custom("z-early", first, health("true"))})
	if !reflect.DeepEqual(changed, []schema.GroupVersionKind{fooKind}) || len(errs) != 1 || !strings.Contains(errs[0].Error(), "answered by z-early already") {
		t.Fatalf("changed %v, %v", changed, errs)
	}
	if got, err := i.Health(t.Context(), fooKind, map[string]any{}, nil, Counts{}); err != nil || got != Healthy {
		t.Fatalf("the older one does not count: %s, %v", got, err)
	}
	if changed, _ := i.Load(t.Context(), []*Customization{custom("z-early", first, health("true"))}); len(changed) != 0 {
		t.Fatalf("nothing is different, changed: %v", changed)
	}
	// A script that cannot be used is nobody's default.
	changed, errs = i.Load(t.Context(), []*Customization{custom("z-early", first, health("("))})
	if len(changed) != 1 || len(errs) != 1 {
		t.Fatalf("changed %v, %v", changed, errs)
	}
	if got, err := i.Health(t.Context(), fooKind, map[string]any{}, nil, Counts{}); err == nil || got != Unknown {
		t.Fatalf("got %s, %v", got, err)
	}
	if changed, _ = i.Load(t.Context(), nil); len(changed) != 1 || i.Scripted(fooKind, InterpretHealth) {
		t.Fatalf("still there: %v", changed)
	}
}

func TestValidate(t *testing.T) {
	v := NewValidator()
	good := configv1alpha1.CustomizationRules{HealthInterpretation: script("function InterpretHealth(o) return true end")}
	other := custom("other", time.Time{}, good)
	for _, c := range []struct {
		name  string
		rules configv1alpha1.CustomizationRules
		with  []*Customization
		want  []string
	}{
		{"good", good, nil, nil},
		{"itself", good, []*Customization{custom("new", time.Time{}, good)}, nil},
		{"nothing", configv1alpha1.CustomizationRules{}, nil, []string{"spec.customizations: Required value: has no script"}},
		{
			"syntax",
			configv1alpha1.CustomizationRules{Retention: script("function Retain(a, b)\n  return a +\nend")},
			nil,
			[]string{`spec.customizations.retention.luaScript: Invalid value: line 3: syntax error near "end"`},
		},
		{
			"name",
			configv1alpha1.CustomizationRules{Retention: script("function Retained(a, b) return a end")},
			nil,
			[]string{"spec.customizations.retention.luaScript: Invalid value: the script does not define function Retain"},
		},
		{
			"answered", good,
			[]*Customization{other},
			[]string{"spec.customizations.healthInterpretation.luaScript: Forbidden: ResourceInterpreterCustomization other answers InterpretHealth of this kind already: put the scripts into one"},
		},
		{
			"loop",
			configv1alpha1.CustomizationRules{Retention: script("while true do end")},
			nil,
			[]string{"spec.customizations.retention.luaScript: Invalid value: line 1: the script takes too many steps"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range v.Validate(t.Context(), custom("new", time.Time{}, c.rules), c.with) {
				got = append(got, e.Error())
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
	bad := custom("new", time.Time{}, good)
	bad.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "a/b/c"}
	if errs := v.Validate(t.Context(), bad, nil); len(errs) != 2 {
		t.Fatalf("target: %v", errs)
	}
}

func TestLimitsAreNamed(t *testing.T) {
	i := loaded(t)
	i.Load(t.Context(), []*Customization{custom("c", time.Time{}, configv1alpha1.CustomizationRules{
		HealthInterpretation: script("function InterpretHealth(o) while true do end end"),
	})})
	_, err := i.Health(t.Context(), fooKind, map[string]any{}, nil, Counts{})
	if !errors.Is(err, sandbox.ErrSteps) || err.Error() != "InterpretHealth of customization c: line 1: the script takes too many steps" {
		t.Fatalf("got %v", err)
	}
}

func TestUnasked(t *testing.T) {
	c := custom("c", time.Time{}, configv1alpha1.CustomizationRules{ReplicaResource: script("x"), HealthInterpretation: script("x"), ReplicaRevision: script("x")})
	if got := Unasked(c); got != nil {
		t.Fatalf("of a user's kind: %q", got)
	}
	c.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "apps/v1", Kind: "Deployment"}
	want := []string{
		"spec.customizations.replicaResource is not asked: replicas of a Deployment are divided by what is built in",
		"spec.customizations.replicaRevision is not asked: replicas of a Deployment are divided by what is built in",
	}
	if got := Unasked(c); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %q", got)
	}
}
