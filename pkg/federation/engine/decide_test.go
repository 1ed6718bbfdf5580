package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

func decode(t testing.TB, doc string) *unstructured.Unstructured {
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

func templateOf(t testing.TB, doc string) *template {
	t.Helper()
	obj, err := transformTemplate(decode(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*template)
}

const web = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: d, uid: tu, resourceVersion: "5", generation: 2, finalizers: [x], labels: {app: web}, annotations: {note: a}},
  spec: {replicas: 6, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}, status: {replicas: 1}}`

var webKey = marks.Key{GroupVersionKind: deploymentGVK, Namespace: "d", Name: "web"}

func TestContentIgnoresStatus(t *testing.T) {
	base := templateOf(t, web)
	for name, c := range map[string]struct {
		from, to string
		same     bool
	}{
		"status":     {"replicas: 1}", "replicas: 2}", true},
		"version":    {`resourceVersion: "5"`, `resourceVersion: "6"`, true},
		"generation": {"generation: 2", "generation: 3", true},
		"spec":       {"replicas: 6", "replicas: 7", false},
		"label":      {"{app: web}, annotations", "{app: x}, annotations", false},
		"annotation": {"note: a", "note: b", false},
		"finalizer":  {"finalizers: [x]", "finalizers: [y]", false},
	} {
		if got := templateOf(t, strings.Replace(web, c.from, c.to, 1)).content == base.content; got != c.same {
			t.Errorf("%s: same content %v", name, got)
		}
	}
	again, err := transformTemplate(base)
	if err != nil || again != any(base) {
		t.Errorf("the transform is not idempotent: %v %v", again, err)
	}
}

func TestRender(t *testing.T) {
	d := &decision{uid: "tu", targets: map[string]int32{"m1": 4, "m2": 2}, divided: true, bindingID: "bid", stamp: "web-1/ru"}
	r, err := render("cp", 3, webKey, templateOf(t, web), d, &placement.Cluster{Name: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.body("cu", 0)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": "web", "namespace": "d", "uid": "cu",
			"labels": map[string]any{"app": "web", marks.Managed: "true", marks.BindingID: "bid"},
			"annotations": map[string]any{
				"note": "a", marks.ControlPlane: "cp", marks.Template: "apps/v1/Deployment/d/web", marks.TemplateUID: "tu",
				marks.Revision: "web-1/ru", marks.TemplateRevision: "5", marks.Epoch: "3",
			},
		},
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	later := templateOf(t, strings.Replace(web, `resourceVersion: "5"`, `resourceVersion: "9"`, 1))
	again, err := render("cp", 4, webKey, later, d, &placement.Cluster{Name: "m1"})
	if err != nil || again.hash != r.hash {
		t.Errorf("provenance alone is a reason to write (%v)", err)
	}
	other, err := render("cp", 3, webKey, templateOf(t, web), d, &placement.Cluster{Name: "m2"})
	if err != nil || other.hash != r.hash || other.replicas != 2 || r.replicas != 4 {
		t.Errorf("replicas %d and %d are no part of the content (%v)", r.replicas, other.replicas, err)
	}
	created, err := other.body("", 2)
	if err != nil || !strings.Contains(string(created), `"replicas":2`) {
		t.Errorf("a copy is created with its replicas: %s (%v)", created, err)
	}
}

// A copy as a member stores it after our write: defaults, a sidecar and labels
// of others, its own status. What is ours must hash as what was said.
func TestProjectionEqualsWhatWasApplied(t *testing.T) {
	d := &decision{targets: map[string]int32{"m1": 6}, divided: true, bindingID: "bid"}
	r, err := render("cp", 3, webKey, templateOf(t, web), d, &placement.Cluster{Name: "m1"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := r.body("", r.replicas)
	if err != nil {
		t.Fatal(err)
	}
	stored := decode(t, string(body))
	stored.SetUID("cu")
	containers := []any{
		map[string]any{"name": "sidecar", "image": "injected"},
		map[string]any{"name": "c", "image": "i", "imagePullPolicy": "Always"},
	}
	if err := unstructured.SetNestedSlice(stored.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	stored.Object["status"] = map[string]any{"replicas": int64(6)}
	stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: marks.Manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{
	  "f:metadata":{"f:labels":{"f:app":{},"f:isthmus.dev/managed":{},"f:resourcebinding.karmada.io/permanent-id":{}},
	    "f:annotations":{"f:note":{},"f:isthmus.dev/control-plane":{},"f:isthmus.dev/epoch":{},"f:isthmus.dev/template":{},"f:isthmus.dev/template-revision":{},"f:isthmus.dev/template-uid":{}}},
	  "f:spec":{"f:replicas":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}}}}}}`)}})
	c, err := recordCopy("cp", deploymentGVK, stored)
	if err != nil {
		t.Fatal(err)
	}
	if !c.owned || c.projection != r.hash || c.replicas != 6 || string(c.status) != `{"replicas":6}` {
		t.Errorf("record %+v, said %x", c, r.hash)
	}
	if !c.contentSays || c.weSay || c.rollout.pods != r.pods {
		t.Errorf("replicas are the content's at creation: %+v, pod template %x, said %x", c, c.rollout.pods, r.pods)
	}
	if err := unstructured.SetNestedField(stored.Object, int64(7), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	scaled, err := recordCopy("cp", deploymentGVK, stored)
	if err != nil || scaled.projection != r.hash || scaled.claims != c.claims || scaled.replicas != 7 {
		t.Errorf("replicas change hands without being drift: %+v (%v)", scaled, err)
	}
	if err := unstructured.SetNestedField(stored.Object, "b", "metadata", "annotations", "note"); err != nil {
		t.Fatal(err)
	}
	if c, err = recordCopy("cp", deploymentGVK, stored); err != nil || c.projection == r.hash {
		t.Errorf("another value at our claims is not seen (%v)", err)
	}
}

func TestUpToDate(t *testing.T) {
	there := func(claims, projection uint64) *copyRecord {
		return &copyRecord{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "5"}, claims: claims, projection: projection}
	}
	for name, c := range map[string]struct {
		last  applied
		there *copyRecord
		want  bool
	}{
		"written and unchanged":           {applied{hash: 1, claims: 2, uid: "u", version: "5"}, there(2, 0), true},
		"changed by somebody":             {applied{hash: 1, claims: 2, uid: "u", version: "4"}, there(3, 0), false},
		"the watch is behind":             {applied{hash: 1, claims: 2, uid: "u", version: "9"}, there(3, 0), true},
		"something new to say":            {applied{hash: 9, claims: 2, uid: "u", version: "5"}, there(2, 0), false},
		"recreated":                       {applied{hash: 1, claims: 2, uid: "old", version: "5"}, there(2, 1), false},
		"after a restart, equal values":   {applied{}, there(2, 1), true},
		"after a restart, another value":  {applied{}, there(2, 7), false},
		"something new, equal by chance?": {applied{hash: 9, claims: 2, uid: "u", version: "5"}, there(2, 1), false},
	} {
		if got := upToDate(c.last, c.there, 1); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestBindingName(t *testing.T) {
	role := marks.Key{GroupVersionKind: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, Namespace: "d", Name: "Team:reader"}
	other := role
	other.Name = "team.reader"
	long := webKey
	long.Name = strings.Repeat("a", 250)
	if got := bindingName(webKey, false); got != "web-deployment" {
		t.Errorf("%q", got)
	}
	seen := map[string]bool{}
	for _, n := range []string{bindingName(role, false), bindingName(other, false), bindingName(other, true), bindingName(long, false), bindingName(webKey, true)} {
		if seen[n] || len(n) > 253 || n != strings.ToLower(n) || strings.Contains(n, ":") {
			t.Errorf("name %q", n)
		}
		seen[n] = true
	}
	v2 := webKey
	v2.Version = "v2"
	if bindingName(webKey, true) != bindingName(v2, true) {
		t.Error("the version is a part of the name")
	}
}

func TestStatusPatch(t *testing.T) {
	service := marks.Key{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}}
	for name, c := range map[string]struct {
		key          marks.Key
		former, next string
		want         string
	}{
		"nothing":                   {webKey, `{"replicas":1}`, `{"replicas":1}`, `{}`},
		"changed and gone":          {webKey, `{"replicas":1,"unavailableReplicas":1}`, `{"replicas":2}`, `{"replicas":2,"unavailableReplicas":null}`},
		"others' part of a Service": {service, `{"conditions":[]}`, `{"loadBalancer":{}}`, `{"loadBalancer":{}}`},
		"a map is replaced":         {service, `{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}`, `{"loadBalancer":{}}`, `{"loadBalancer":{"ingress":null}}`},
	} {
		var former, next map[string]any
		if json.Unmarshal([]byte(c.former), &former) != nil || json.Unmarshal([]byte(c.next), &next) != nil {
			t.Fatal(name)
		}
		got, err := json.Marshal(statusPatch(c.key, former, next))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestUrgency(t *testing.T) {
	const base = `{observedGeneration: 1, replicas: 6, readyReplicas: 3, conditions: [{type: Available, status: "False", reason: R, message: m}]}`
	for name, c := range map[string]struct {
		from, to string
		want     urgency
	}{
		"a message":         {"message: m", "message: n", whenDue},
		"a total":           {"replicas: 6", "replicas: 7", whenDue},
		"on the way":        {"readyReplicas: 3", "readyReplicas: 4", soon},
		"all are ready":     {"readyReplicas: 3", "readyReplicas: 6", atOnce},
		"a condition turns": {`status: "False"`, `status: "True"`, atOnce},
		"a reason":          {"reason: R", "reason: S", atOnce},
		"observed":          {"observedGeneration: 1", "observedGeneration: 2", atOnce},
	} {
		former := decode(t, "{apiVersion: v1, kind: X, status: "+base+"}").Object["status"].(map[string]any)
		next := decode(t, "{apiVersion: v1, kind: X, status: "+strings.Replace(base, c.from, c.to, 1)+"}").Object["status"].(map[string]any)
		if got := urgencyOf(former, next); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := urgencyOf(next, former); c.want == atOnce && got != atOnce {
			t.Errorf("%s, back: %v", name, got)
		}
	}
}

func TestNeeds(t *testing.T) {
	n := newNeeds()
	cm := marks.Key{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "d", Name: "c"}
	ref := dependencies.Ref{Kind: "ConfigMap", Name: "c"}
	if got := n.set(webKey, []dependencies.Ref{ref}); len(got) != 1 {
		t.Errorf("changed: %v", got)
	}
	if got := n.set(webKey, []dependencies.Ref{ref}); len(got) != 0 {
		t.Errorf("changed again: %v", got)
	}
	if got := n.workloads(cm, nil); len(got) != 1 || got[0] != webKey {
		t.Errorf("workloads: %v", got)
	}
	elsewhere := cm
	elsewhere.Namespace = "e"
	if got := n.workloads(elsewhere, nil); len(got) != 0 {
		t.Errorf("another namespace: %v", got)
	}
	if got := n.set(webKey, nil); len(got) != 1 || len(n.workloads(cm, nil)) != 0 || len(n.of)+len(n.by) != 0 {
		t.Errorf("left after removal: %v %v", n.of, n.by)
	}
}

// Whatever a member sends as managedFields: no panic.
func FuzzProject(f *testing.F) {
	f.Add([]byte(`{"spec":{"a":[{"name":"x"},1,"v"],"m":{"k":1}}}`), []byte(`{"f:spec":{"f:a":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}},"v:\"v\"":{},"i:1":{}},"f:m":{".":{}}}}`))
	f.Add([]byte(`{"a":[[1],{}]}`), []byte(`{"f:a":{"k:{\"x\":[1]}":{},"v:{}":{},"i:-1":{},"k:null":{},"q":1}}`))
	f.Fuzz(func(t *testing.T, raw, fields []byte) {
		var object, claims map[string]any
		if json.Unmarshal(raw, &object) != nil || json.Unmarshal(fields, &claims) != nil {
			return
		}
		if _, err := appliedHash(project(object, claims)); err != nil {
			t.Error(err)
		}
	})
}
