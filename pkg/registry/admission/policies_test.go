package admission

import (
	"context"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// policyRequest is one for a policy, with its spec in YAML.
func policyRequest(t *testing.T, resource, namespace, spec string, old runtime.Object, op admission.Operation) (admission.Attributes, *unstructured.Unstructured) {
	t.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte("{apiVersion: policy.karmada.io/v1alpha1, kind: X, metadata: {name: p, labels: {" + marks.NamespacePolicyID + ": copied}}, spec: " + spec + "}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	gv := schema.GroupVersion{Group: "policy.karmada.io", Version: "v1alpha1"}
	return admission.NewAttributesRecord(u, old, gv.WithKind("X"), namespace, "p", gv.WithResource(resource), "", op, nil, false, &user.DefaultInfo{Name: "jane"}), u
}

func TestPoliciesAreCompleted(t *testing.T) {
	p := &policies{}
	seen := map[string]bool{"copied": true, "": true}
	for range 2 {
		a, u := policyRequest(t, "propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Secret, namespace: team}]}`, nil, admission.Create)
		if err := p.Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		id := u.GetLabels()[marks.NamespacePolicyID]
		if seen[id] {
			t.Errorf("the id %q is not its own", id)
		}
		seen[id] = true
		selectors, _, err := unstructured.NestedSlice(u.Object, "spec", "resourceSelectors")
		if err != nil || len(selectors) != 2 {
			t.Fatal(selectors, err)
		}
		for _, s := range selectors {
			if s.(map[string]any)["namespace"] != "team" {
				t.Errorf("selector %v", s)
			}
		}
	}
	a, u := policyRequest(t, "clusterpropagationpolicies", "", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}`, nil, admission.Create)
	if err := p.Admit(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if labels := u.GetLabels(); labels[marks.ClusterPolicyID] == "" || labels[marks.NamespacePolicyID] != "" {
		t.Errorf("labels %v", labels)
	}
}

// The grace period belongs to Gracefully alone.
func TestGracePeriodIsFilledIn(t *testing.T) {
	for failover, want := range map[string]any{
		`{application: {}}`:                                              int64(600),
		`{application: {purgeMode: Graciously}}`:                         int64(600),
		`{application: {purgeMode: Gracefully, gracePeriodSeconds: 20}}`: int64(20),
		`{application: {purgeMode: Immediately}}`:                        nil,
		`{application: {purgeMode: Never}}`:                              nil,
		`{cluster: {}}`:                                                  nil,
	} {
		a, u := policyRequest(t, "clusterpropagationpolicies", "", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], failover: `+failover+`}`, nil, admission.Create)
		if err := (&policies{}).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if got, _, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "failover", "application", "gracePeriodSeconds"); got != want || err != nil && want != nil {
			t.Errorf("%s: %v, %v", failover, got, err)
		}
	}
}

// rightsOn allows one verb on one resource.
func rightsOn(allowed string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb()+" "+a.GetResource()+"."+a.GetAPIGroup()+" "+a.GetNamespace() == allowed && a.GetUser().GetName() == "jane" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

func TestPoliciesAreJudged(t *testing.T) {
	const roles = `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: rbac.authorization.k8s.io/v1, kind: Role}]}`
	for name, c := range map[string]struct {
		resource, namespace, spec, allowed, want string
	}{
		"fine":                   {"propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}`, "", ""},
		"another's namespace":    {"propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: other}]}`, "", "ClusterPropagationPolicy"},
		"a selector":             {"clusterpropagationpolicies", "", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}]}`, "", "Near"},
		"a group of clusters":    {"propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placement: {clusterAffinities: [{affinityName: a, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}]}}`, "", "clusterAffinities a"},
		"both kinds of weights":  {"propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placement: {replicaScheduling: {weightPreference: {dynamicWeight: AvailableReplicas, staticWeightList: [{targetCluster: {}, weight: 1}]}}}}`, "", "weightPreference"},
		"a path in the status":   {"propagationpolicies", "team", `{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], failover: {application: {statePreservation: {rules: [{aliasLabelName: a, jsonPath: "{.a"}]}}}}`, "", "jsonPath"},
		"overrides of Roles":     {"overridepolicies", "team", roles, "", "escalate on roles.rbac.authorization.k8s.io"},
		"allowed":                {"overridepolicies", "team", roles, "escalate roles.rbac.authorization.k8s.io team", ""},
		"allowed elsewhere":      {"overridepolicies", "team", roles, "escalate roles.rbac.authorization.k8s.io other", "escalate"},
		"of webhooks":            {"clusteroverridepolicies", "", `{resourceSelectors: [{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy}]}`, "", "validatingadmissionpolicies"},
		"of definitions":         {"clusteroverridepolicies", "", `{resourceSelectors: [{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}]}`, "", "customresourcedefinitions"},
		"of everything else":     {"clusteroverridepolicies", "", `{overrideRules: []}`, "", ""},
		"a rule that is useless": {"overridepolicies", "team", `{overrideRules: [{targetCluster: {fieldSelector: {matchExpressions: [{key: color, operator: In}]}}, overriders: {}}]}`, "", "color"},
	} {
		a, u := policyRequest(t, c.resource, c.namespace, c.spec, nil, admission.Create)
		p := &policies{rights: rights{rightsOn(c.allowed)}}
		err := p.Validate(t.Context(), a, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		again, _ := policyRequest(t, c.resource, c.namespace, c.spec, u, admission.Update)
		if err := p.Validate(t.Context(), again, nil); err != nil {
			t.Errorf("%s: a write that leaves the spec is refused: %v", name, err)
		}
	}
	if (&policies{}).ValidateInitialization() == nil {
		t.Error("it works without an authorizer")
	}
}

func TestClaimsAreKept(t *testing.T) {
	claim := map[string]string{marks.NamespacePolicyID: "p1"}
	for name, c := range map[string]struct {
		old, written map[string]string
		options      runtime.Object
		want         map[string]string
	}{
		"dropped by a replacement": {map[string]string{"a": "b", marks.NamespacePolicyID: "p1"}, map[string]string{"a": "c"}, &metav1.UpdateOptions{}, map[string]string{"a": "c", marks.NamespacePolicyID: "p1"}},
		"changed by a client":      {claim, map[string]string{marks.NamespacePolicyID: "mine"}, &metav1.PatchOptions{FieldManager: "kubectl"}, claim},
		"forged by a client":       {nil, map[string]string{marks.ClusterPolicyID: "mine"}, &metav1.UpdateOptions{}, map[string]string{}},
		"changed by the engine":    {claim, map[string]string{marks.ClusterPolicyID: "p2"}, &metav1.PatchOptions{FieldManager: marks.Manager}, map[string]string{marks.ClusterPolicyID: "p2"}},
		"removed by the engine":    {claim, nil, &metav1.PatchOptions{FieldManager: marks.Manager}, nil},
	} {
		old, obj := &core.ConfigMap{}, &core.ConfigMap{}
		old.Labels, obj.Labels = c.old, c.written
		var f TemplateFinalizer
		a := admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "a", "x",
			schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Update, c.options, false, nil)
		if err := (templateFinalizer{admission.NewHandler(admission.Update), &f}).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(obj.Labels, c.want) {
			t.Errorf("%s: %v, want %v", name, obj.Labels, c.want)
		}
	}
	// A new object has the claim of the policy that selects it, whatever it says.
	var f TemplateFinalizer
	f.Lead(func(schema.GroupKind, metav1.Object, string) bool { return false }, func(schema.GroupKind, metav1.Object, string) (l, a map[string]string) {
		return marks.Claim("a", "web", "p1")
	})
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{marks.ClusterPolicyID: "copied", "a": "b"}}}
	a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "a", "x",
		schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Create, &metav1.CreateOptions{}, false, nil)
	if err := (templateFinalizer{admission.NewHandler(admission.Create), &f}).Admit(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": "b", marks.NamespacePolicyID: "p1"}; !maps.Equal(obj.Labels, want) || obj.Annotations[marks.NamespacePolicyName] != "web" {
		t.Errorf("labels %v, annotations %v", obj.Labels, obj.Annotations)
	}
}

func TestDeletionIsRefused(t *testing.T) {
	for value, refused := range map[string]bool{"": false, "Never": false, ProtectedValue: true} {
		old := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{ProtectedLabel: value}}}
		a := admission.NewAttributesRecord(nil, old, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "a", "x",
			schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Delete, &metav1.DeleteOptions{}, false, nil)
		err := deletionProtection{admission.NewHandler(admission.Delete)}.Validate(t.Context(), a, nil)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), ProtectedLabel) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
