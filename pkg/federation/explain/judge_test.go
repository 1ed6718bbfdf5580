package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, uid: u, generation: 1, labels: {app: web}},
  spec: {replicas: REPLICAS, strategy: {rollingUpdate: {maxSurge: 3, maxUnavailable: 0}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: IMAGE}]}}}}`

func facts(t *testing.T) Facts {
	t.Helper()
	i, err := interpreter.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster := func(name, spec string, ready metav1.ConditionStatus) clusterv1alpha1.Cluster {
		c := read[clusterv1alpha1.Cluster](t, spec)
		c.Name = name
		c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: ready}}
		return c
	}
	divided := `{clusterAffinity: {exclude: [m6]}, replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted}}`
	f := Facts{
		Template: object(t, strings.NewReplacer("REPLICAS", "6", "IMAGE", "i:1").Replace(web)), Resource: "deployments", Interpreter: i,
		Clusters: []clusterv1alpha1.Cluster{
			cluster("m6", "{}", metav1.ConditionTrue),
			cluster("m3", "{spec: {taints: [{key: upkeep, effect: NoSchedule}]}}", metav1.ConditionTrue),
			cluster("m4", "{}", metav1.ConditionFalse),
			cluster("m5", "{status: {apiEnablements: [{groupVersion: v1, resources: [{name: pods, kind: Pod}]}]}}", metav1.ConditionTrue),
			cluster("m1", "{}", metav1.ConditionTrue), cluster("m2", "{}", metav1.ConditionTrue),
		},
		Policies: []*placement.Policy{
			{Name: "all", UID: "p1", Default: true, Spec: read[policyv1alpha1.PropagationSpec](t, "{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]}")},
			{Namespace: "shop", Name: "web", UID: "p2", Spec: read[policyv1alpha1.PropagationSpec](t, "{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}], placement: "+divided+"}")},
			{Name: "jobs", UID: "p3", Spec: read[policyv1alpha1.PropagationSpec](t, "{resourceSelectors: [{apiVersion: batch/v1, kind: Job}]}")},
		},
		Overrides: []override.Policy{{Namespace: "shop", Name: "images", Spec: read[policyv1alpha1.OverrideSpec](t,
			"{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], overrideRules: [{targetCluster: {clusterNames: [m2]}, overriders: {imageOverrider: [{component: Tag, operator: replace, value: '2'}]}}]}")}},
		Copies: map[string]Copy{
			"m1": {Object: object(t, strings.NewReplacer("REPLICAS", "5", "IMAGE", "i:1", "maxSurge: 3", "maxSurge: 1").Replace(web))},
			"m2": {Problem: "unreachable"},
		},
		Breaker: []engine.BreakerStatus{{Trip: breaker.Trip{ID: "derived"}, Examples: []string{"delete m9 apps/v1/Deployment/shop/web", "delete m9 apps/v1/Deployment/shop/other"}}},
	}
	f.Binding = &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"propagationpolicy.karmada.io/namespace": "shop", "propagationpolicy.karmada.io/name": "web",
	}}}
	f.Binding.Spec = workv1alpha2.ResourceBindingSpec{
		Replicas: 6, Clusters: []workv1alpha2.TargetCluster{{Name: "m1", Replicas: 2}, {Name: "m2", Replicas: 4}},
		Placement: &f.Policies[1].Spec.Placement,
	}
	f.Binding.Status = workv1alpha2.ResourceBindingStatus{
		AggregatedStatus: []workv1alpha2.AggregatedStatusItem{
			{ClusterName: "m1", Applied: true, Health: interpreter.Healthy}, {ClusterName: "m2", AppliedMessage: "refused: no quota", Health: interpreter.Unknown},
		},
		Conditions: []metav1.Condition{
			{Type: "Scheduled", Status: metav1.ConditionTrue, Reason: "Success", LastTransitionTime: metav1.NewTime(time.Unix(0, 0))},
			{Type: "FieldsDropped", Status: metav1.ConditionTrue, Reason: "UnknownToMember", Message: "m2: spec.future"},
		},
	}
	return f
}

func TestReport(t *testing.T) {
	var b strings.Builder
	if err := Judge(facts(t)).Print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `deployment.apps/web in namespace shop

Policy
  PropagationPolicy shop/web (by name)
  also matches: ClusterPropagationPolicy all (by kind, a default: gives way to any other)

Placement
  6 replicas in 2 of 6 clusters
  m1  2 replicas, applied, healthy
  m2  4 replicas, not applied, refused: no quota
  m3  excluded: tainted upkeep:NoSchedule
  m4  excluded: not ready
  m5  excluded: lacks deployments.apps
  m6  excluded: not selected by clusterAffinity

Overrides
  m2: OverridePolicy shop/images: spec.template.spec.containers[c].image becomes i:2 instead of i:1

Differences between what a cluster is told and what it has
  m1: spec.replicas is 5, wanted 2
  m1: spec.strategy.type is missing
  m2: cannot be compared: unreachable

Conditions
  Scheduled True
  FieldsDropped True (UnknownToMember): m2: spec.future

The breaker holds back (multicluster-apiserver breaker status)
  derived: delete m9 apps/v1/Deployment/shop/web
`
	if b.String() != want {
		t.Fatalf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestYAML(t *testing.T) {
	var b strings.Builder
	if err := Judge(facts(t)).YAML(&b); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(b.String(), "---\n")
	if len(documents) != 3 || !strings.HasPrefix(documents[2], "# m2\n") {
		t.Fatalf("got %s", b.String())
	}
	var told map[string]any
	if err := yaml.Unmarshal([]byte(documents[2]), &told); err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(told)
	const want = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web","namespace":"shop"},` +
		`"spec":{"replicas":4,"strategy":{"rollingUpdate":{"maxSurge":2,"maxUnavailable":0},"type":"RollingUpdate"},` +
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"i:2","name":"c"}]}}}}`
	if string(raw) != want {
		t.Fatalf("got %s", raw)
	}
}

func TestPolicyInWords(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"not acted on":    {func(f *Facts) { f.Binding = nil }, "PropagationPolicy shop/web (by name), not acted on yet"},
		"since before":    {func(f *Facts) { p := *f.Policies[1]; p.Name = "aa"; f.Policies = append(f.Policies, &p) }, "PropagationPolicy shop/web (by name), which has spoken for it since before"},
		"deleted":         {func(f *Facts) { f.Policies = nil }, "none any more: what it has placed stays"},
		"another matches": {func(f *Facts) { f.Policies = f.Policies[:1] }, "none that speaks: its policy was deleted, and what it has placed stays (ClusterPropagationPolicy all would match)"},
		"nothing":         {func(f *Facts) { f.Policies, f.Binding = nil, nil }, "none matches: it goes nowhere"},
		"needed": {func(f *Facts) {
			f.Policies, f.Binding.Spec.Placement = nil, nil
			f.Binding.Spec.RequiredBy = []workv1alpha2.BindingSnapshot{{Name: "web-deployment"}}
		}, "none: it follows what needs it (web-deployment)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			c.change(&f)
			if got := Judge(f); got.Policy != c.want {
				t.Fatalf("got %q, want %q", got.Policy, c.want)
			}
		})
	}
	f := facts(t)
	f.Template = object(t, "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, namespace: shop}}")
	if got := Judge(f); got.Forbidden == "" {
		t.Fatal("a token Secret is never propagated")
	}
}

func TestDecidedElsewhere(t *testing.T) {
	scaled := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {managedFields: [{manager: c, operation: Update, subresource: scale, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}]}}`)
	for _, c := range []struct {
		object *unstructured.Unstructured
		path   string
		want   bool
	}{
		{scaled, "spec.replicas", true},
		{scaled, "spec.paused", false},
		{object(t, "{apiVersion: apps/v1, kind: Deployment}"), "spec.replicas", false},
		{object(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler}"), "spec.minReplicas", true},
		{object(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler}"), "spec.metrics", false},
		{object(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget}"), "spec.maxUnavailable", true},
	} {
		if got := decidedElsewhere(c.object, c.path); got != c.want {
			t.Errorf("%s of %s: %v", c.path, c.object.GetKind(), got)
		}
	}
}
