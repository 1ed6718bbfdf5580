package engine

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/eviction"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// rulesOf compiles an override of an image prefix.
func rulesOf(t *testing.T) override.Rules {
	t.Helper()
	index, errs := override.NewIndex([]override.Policy{{Name: "p", Spec: policyv1alpha1.OverrideSpec{}}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return index.For(placement.Template{APIVersion: "v1", Kind: "ConfigMap", Namespace: "d", Name: "c"})
}

// Every field of a decision either goes into the inputs of a rendering, or keeps
// it from being remembered, or nothing that is rendered depends on it.
func TestInputsAreComplete(t *testing.T) {
	change := map[string]func(*decision){
		"targets":   func(d *decision) { d.targets = map[string]int32{"m1": 9} },
		"divided":   func(d *decision) { d.divided = true },
		"bindingID": func(d *decision) { d.bindingID = "x" },
		"stamp":     func(d *decision) { d.stamp = "x" },
		"overrides": func(d *decision) { d.overrides = rulesOf(t) },
		"eviction": func(d *decision) {
			d.eviction = &evicting{left: []eviction.Left{{Cluster: "m2", Labels: map[string]string{"a": "b"}, Before: []string{"m2"}}}}
		},
		"node":       func(d *decision) { d.node = &node{served: "a", cluster: "m1", name: "b"} },
		"shares":     func(d *decision) { d.shares = map[string]rollout.Budget{"m1": {Surge: 1}} },
		"bounds":     func(d *decision) { d.bounds = map[string]replicas.Autoscaler{"m1": {Max: 3}} },
		"disruption": func(d *decision) { d.disruption = map[string]map[string]int32{"maxUnavailable": {"m1": 1}} },
	}
	forgotten := map[string]func(*decision){
		"revise": func(d *decision) {
			d.revise = func(o map[string]any, _ int32) (map[string]any, error) { return o, nil }
		},
		"quota": func(d *decision) { d.quota = quota.State{} },
	}
	other := strings.Fields("uid content generation nearer since basis total askedLess overwrite suspended suspendOn follows group " +
		"reason problem limit again at spread replicas budgeted strategy mu outlines")
	for field := range reflect.TypeFor[decision]().Fields() {
		_, in := change[field.Name]
		_, out := forgotten[field.Name]
		if !in && !out && !slices.Contains(other, field.Name) {
			t.Errorf("does a rendering depend on decision.%s?", field.Name)
		}
	}
	e := &Engine{interpreter: newInterpreter(t)}
	m := &member{name: "m1", engine: e, applied: map[marks.Key]*applied{}}
	tpl, cluster := templateOf(t, web), &placement.Cluster{Name: "m1"}
	plain := m.inputsOf(webKey, tpl, &decision{}, cluster)
	if again := m.inputsOf(webKey, tpl, &decision{}, cluster); plain == nil || *again != *plain {
		t.Fatal("equal inputs differ")
	}
	for name, fn := range change {
		d := &decision{}
		fn(d)
		if in := m.inputsOf(webKey, tpl, d, cluster); in == nil || *in == *plain {
			t.Errorf("another %s is not seen", name)
		}
	}
	for name, fn := range forgotten {
		d := &decision{}
		fn(d)
		if m.inputsOf(webKey, tpl, d, cluster) != nil {
			t.Errorf("with %s a rendering is remembered", name)
		}
	}
	changed := templateOf(t, strings.Replace(web, "image: i", "image: j", 1))
	if in := m.inputsOf(webKey, changed, &decision{}, cluster); *in == *plain {
		t.Error("another content is not seen")
	}
	if a, b := rulesOf(t), rulesOf(t); a.Versions()[0] == b.Versions()[0] {
		t.Error("two states of a policy are one")
	}
	d := &decision{overrides: rulesOf(t)}
	a, b := m.inputsOf(webKey, tpl, d, cluster), m.inputsOf(webKey, tpl, d, &placement.Cluster{Name: "m1", Region: "r"})
	if *a == *b {
		t.Error("a change of the cluster is not seen where overrides may depend on it")
	}
}

func newInterpreter(t *testing.T) *interpreter.Interpreter {
	t.Helper()
	i, err := interpreter.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: d, uid: tu, resourceVersion: "5"}, data: {k: v}}`

var settingsKey = marks.Key{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "d", Name: "c"}

// storedCopy is how a member holds what it was told.
func storedCopy(t *testing.T, tpl *template, d *decision) *copyRecord {
	t.Helper()
	r, err := render("cp", 1, settingsKey, tpl, d, &placement.Cluster{Name: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.body("", 0)
	if err != nil {
		t.Fatal(err)
	}
	stored := decode(t, string(body))
	stored.SetUID("cu")
	stored.SetResourceVersion("8")
	stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: marks.Manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(
		`{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{"f:isthmus.dev/managed":{}},"f:annotations":{"f:isthmus.dev/control-plane":{},` +
			`"f:isthmus.dev/epoch":{},"f:isthmus.dev/template":{},"f:isthmus.dev/template-revision":{},"f:isthmus.dev/template-uid":{}}}}`)}})
	c, err := recordCopy("cp", settingsKey.GroupVersionKind, stored)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Desired state is compared by digest: a copy that is as it should be is neither
// read nor written, also by a process that has just started; and as long as
// nothing that goes into it changes, it is not even rendered again.
func TestNothingChanged(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	k := kind{GroupVersionKind: settingsKey.GroupVersionKind, resource: "configmaps", namespaced: true}
	e := &Engine{
		id: "cp", interpreter: newInterpreter(t), recorder: record.NewFakeRecorder(100), kinds: map[schema.GroupKind]*kindWatch{k.GroupKind(): {kind: k}},
		statusQueue: newQueue[marks.Key](""), templateQueue: newQueue[marks.Key](""),
	}
	defer e.statusQueue.ShutDown()
	defer e.templateQueue.ShutDown()
	e.cfg.RequestTimeout = time.Minute
	e.fence = newFenceKeeper(e)
	e.fence.checked.Store(true)
	m := &member{name: "unchanged", engine: e, client: client, ctx: t.Context(), queue: newQueue[marks.Key](""), applied: map[marks.Key]*applied{}}
	defer m.queue.ShutDown()
	m.fence.ours.Store(true)
	m.fence.covers.Store(100)
	w := &copyWatch{informer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})}
	m.watches = map[schema.GroupKind]*copyWatch{k.GroupKind(): w}
	tpl := templateOf(t, settings)
	decide := func() *decision {
		return &decision{uid: tpl.UID, content: tpl.content, targets: map[string]int32{"unchanged": 0}}
	}
	if err := w.informer.GetStore().Add(storedCopy(t, tpl, decide())); err != nil {
		t.Fatal(err)
	}
	count := func() (made, recalledNow, asked int) {
		return counted(t, renders.WithLabelValues(m.name)), counted(t, recalled.WithLabelValues(m.name)), int(requests.Load())
	}
	for pass := range 3 { // each with a decision of its own
		if err := m.apply(t.Context(), settingsKey, tpl, decide()); err != nil {
			t.Fatal(err)
		}
		if made, again, asked := count(); made != 1 || again != pass || asked != 0 {
			t.Fatalf("pass %d: rendered %d times, not again %d times, %d requests", pass, made, again, asked)
		}
	}
	tpl = templateOf(t, strings.NewReplacer("k: v", "k: w", `"5"`, `"6"`).Replace(settings))
	_ = m.apply(t.Context(), settingsKey, tpl, decide()) // the server refuses
	if made, _, asked := count(); made != 2 || asked == 0 {
		t.Errorf("after a change: rendered %d times, %d requests", made, asked)
	}
}

func counted(t *testing.T, c metrics.CounterMetric) int {
	t.Helper()
	v, err := testutil.GetCounterMetricValue(c)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}
