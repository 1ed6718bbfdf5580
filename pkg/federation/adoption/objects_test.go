package adoption

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

func object(t *testing.T, doc string) *unstructured.Unstructured {
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

func named(group, kindName, resource string, short ...string) kind {
	return kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kindName}, resource: resource, singular: strings.ToLower(kindName), short: short}
}

func TestResolve(t *testing.T) {
	kinds := []kind{
		named("example.com", "Deployment", "deployments"),
		named("apps", "Deployment", "deployments", "deploy"),
		named("", "ConfigMap", "configmaps", "cm"),
		named("shop.example.com", "Gear", "gears"),
	}
	for word, want := range map[string]string{
		"deployment": "apps", "Deployments": "apps", "deploy": "apps", "deployment.example.com": "example.com",
		"CM": "", "configmap": "", "gears.shop.example.com": "shop.example.com", "gear": "shop.example.com",
	} {
		if got, err := resolve(kinds, word); err != nil || got.Group != want {
			t.Errorf("%s: %v %v", word, got, err)
		}
	}
	for _, word := range []string{"", "pods", "deployment.other.com", "configmap.apps"} {
		if got, err := resolve(kinds, word); !errors.Is(err, ErrUnknownKind) {
			t.Errorf("%q: %v %v", word, got, err)
		}
	}
}

func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct{ doc, says string }{
		"a plain object":  {`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: d}}`, ""},
		"a copy":          {`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: d, labels: {isthmus.dev/managed: "true"}, annotations: {isthmus.dev/control-plane: x, isthmus.dev/template: core/v1/ConfigMap/d/c}}}`, managedAlready},
		"a clone of one":  {`{apiVersion: v1, kind: ConfigMap, metadata: {name: clone, namespace: d, labels: {isthmus.dev/managed: "true"}, annotations: {isthmus.dev/control-plane: x, isthmus.dev/template: core/v1/ConfigMap/d/c}}}`, ""},
		"owned":           {`{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: d, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: c, uid: u, controller: true}]}}`, "belongs to CronJob c"},
		"going":           {`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: d, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, "being deleted"},
		"every cluster's": {`{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: d}}`, "kube-root-ca.crt"},
		"a token":         {`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: s, namespace: d}}`, "token"},
		"of the system":   {`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: kube-system}}`, "reserved"},
	} {
		if got := unfit(object(t, c.doc)); c.says == "" && got != "" || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPlacedAndApplied(t *testing.T) {
	template := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: d}}`)
	w := &work{item: &item{kind: named("apps", "Deployment", "deployments"), name: "web"}, plan: &adopt.Plan{
		Template: template, Clusters: []string{"m1", "m2"}, Replicas: map[string]int32{"m1": 3, "m2": 2},
	}}
	binding := func(policy string, targets ...workv1alpha2.TargetCluster) *workv1alpha2.ResourceBinding {
		b := &workv1alpha2.ResourceBinding{}
		b.Annotations = map[string]string{namespacePolicyName: policy}
		b.Spec.Clusters = targets
		return b
	}
	m1, m2 := workv1alpha2.TargetCluster{Name: "m1", Replicas: 3}, workv1alpha2.TargetCluster{Name: "m2", Replicas: 2}
	less := workv1alpha2.TargetCluster{Name: "m2", Replicas: 1}
	more := workv1alpha2.TargetCluster{Name: "m3"}
	for name, c := range map[string]struct {
		b    *workv1alpha2.ResourceBinding
		want bool
	}{
		"as planned":     {binding("adopted-deployment-web", m1, m2), true},
		"another policy": {binding("isthmus-default-deployments", m1, m2), false},
		"a cluster less": {binding("adopted-deployment-web", m1), false},
		"a cluster more": {binding("adopted-deployment-web", m1, m2, more), false},
		"other replicas": {binding("adopted-deployment-web", m1, less), false},
	} {
		if got, err := (&run{}).placed(w, c.b); got != c.want || err != nil {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	b := binding("x")
	if done, err := applied(w, b); done || err != nil {
		t.Error(done, err)
	}
	b.Status.Conditions = []metav1.Condition{{Type: conditionAdopted, Status: metav1.ConditionFalse, Message: "m1: no"}}
	if _, err := applied(w, b); !errors.Is(err, adopt.ErrRefused) {
		t.Error(err)
	}
	b.Status.Conditions = []metav1.Condition{{Type: workv1alpha2.ConditionFullyApplied, Status: metav1.ConditionTrue}}
	if done, err := applied(w, b); !done || err != nil {
		t.Error(done, err)
	}
}
