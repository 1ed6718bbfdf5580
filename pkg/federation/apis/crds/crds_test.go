package crds

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// kind judges objects as the API server does: it prunes, completes, and says
// what it refuses.
type kind struct {
	definition apiextensions.CustomResourceDefinition
	structural *structuralschema.Structural
	schema     apiservervalidation.SchemaValidator
	rules      *cel.Validator
}

func definitions(t *testing.T) map[string]*kind {
	t.Helper()
	names, err := fs.Glob(Files, "*.yaml")
	if err != nil || len(names) < 9 {
		t.Fatalf("%d definitions: %v", len(names), err)
	}
	out := map[string]*kind{}
	for _, name := range names {
		raw, err := Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var v1 apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(raw, &v1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
		k := &kind{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &k.definition, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		internal := k.definition.Spec.Validation
		if internal == nil {
			internal = k.definition.Spec.Versions[0].Schema
		}
		if k.structural, err = structuralschema.NewStructural(internal.OpenAPIV3Schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k.schema, _, err = apiservervalidation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		k.rules = cel.NewValidator(k.structural, true, celconfig.PerCallLimit)
		out[v1.Spec.Names.Kind] = k
	}
	return out
}

// judge completes an object and says what is refused of it.
func (k *kind) judge(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	pruning.Prune(object, k.structural, true)
	defaulting.Default(object, k.structural)
	errs := apiservervalidation.ValidateCustomResource(nil, object, k.schema)
	if len(errs) > 0 || k.rules == nil {
		return errs
	}
	errs, _ = k.rules.Validate(t.Context(), nil, k.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

// An API server takes all definitions: their schemas are structural and the
// costs of their rules within bounds.
func TestDefinitionsAreServed(t *testing.T) {
	for name, k := range definitions(t) {
		d := k.definition
		d.Status.StoredVersions = []string{d.Spec.Versions[0].Name}
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), &d); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
	}
}

func object(t *testing.T, doc string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(raw, &out); err != nil { // whole numbers stay whole
		t.Fatal(err)
	}
	return out
}

// refused are the only values of policies that are refused, each by its name.
var refused = map[string]string{
	"association: true":   "spec.association",
	"schedulerName: mine": "spec.schedulerName",
	"failover: {application: {purgeMode: Never, gracePeriodSeconds: 30}}":                                                           "spec.failover.application.gracePeriodSeconds",
	"failover: {application: {gracePeriodSeconds: 0}}":                                                                              "gracePeriodSeconds",
	"failover: {application: {purgeMode: Perhaps}}":                                                                                 "purgeMode",
	"failover: {application: {decisionConditions: {tolerationSeconds: -1}}}":                                                        "tolerationSeconds",
	"failover: {cluster: {purgeMode: Never}}":                                                                                       "spec.failover.cluster.purgeMode",
	"failover: {cluster: {statePreservation: {rules: []}}}":                                                                         "statePreservation.rules",
	"schedulePriority: {priorityClassSource: FederatedPriorityClass, priorityClassName: x}":                                         "schedulePriority.priorityClassSource",
	"schedulePriority: {priorityClassSource: KubePriorityClass}":                                                                    "schedulePriority.priorityClassName",
	"suspension: {dispatching: true, dispatchingOnClusters: {clusterNames: [a]}}":                                                   "suspension",
	"activationPreference: Eager":                                                                                                   "activationPreference",
	"preemption: Sometimes":                                                                                                         "preemption",
	"conflictResolution: Merge":                                                                                                     "conflictResolution",
	"resourceSelectors: []":                                                                                                         "resourceSelectors",
	"placement: {clusterAffinity: {}, clusterAffinities: [{affinityName: a}]}":                                                      "spec.placement",
	"placement: {clusterAffinities: [{affinityName: a}, {affinityName: a}]}":                                                        "", // a duplicate is refused by the list type
	"placement: {clusterAffinity: {fieldSelector: {matchExpressions: [{key: color, operator: In, values: [a]}]}}}":                  "key",
	"placement: {spreadConstraints: [{spreadByField: cluster, spreadByLabel: rack}]}":                                               "spreadConstraints",
	"placement: {spreadConstraints: [{minGroups: 2}]}":                                                                              "spreadConstraints",
	"placement: {spreadConstraints: [{spreadByField: cluster, minGroups: 3, maxGroups: 2}]}":                                        "spreadConstraints",
	"placement: {spreadConstraints: [{spreadByField: planet}]}":                                                                     "spreadByField",
	"placement: {replicaScheduling: {replicaSchedulingType: Some}}":                                                                 "replicaSchedulingType",
	"placement: {replicaScheduling: {replicaDivisionPreference: Aggregated, weightPreference: {dynamicWeight: AvailableReplicas}}}": "replicaScheduling",
	"placement: {replicaScheduling: {weightPreference: {dynamicWeight: Cost}}}":                                                     "dynamicWeight",
	"placement: {replicaScheduling: {weightPreference: {staticWeightList: [{targetCluster: {}, weight: 0}]}}}":                      "weight",
	"placement: {workloadAffinity: {affinity: {groupByLabelKey: ''}}}":                                                              "groupByLabelKey",
}

func TestRefusedByName(t *testing.T) {
	policy := definitions(t)["PropagationPolicy"]
	for doc, want := range refused {
		if want == "" {
			continue
		}
		spec := object(t, doc)
		if _, ok := spec["resourceSelectors"]; !ok {
			spec["resourceSelectors"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		}
		errs := policy.judge(t, map[string]any{"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": map[string]any{"name": "x"}, "spec": spec})
		if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want) {
			t.Errorf("%s: %v, want %s named", doc, errs.ToAggregate(), want)
		}
	}
}

// messages are what the rules of a schema say.
func messages(s *structuralschema.Structural, out map[string]bool) {
	if s == nil {
		return
	}
	for _, rule := range s.XValidations {
		out[rule.Message] = true
	}
	for _, property := range s.Properties {
		messages(&property, out)
	}
	messages(s.Items, out)
	if s.AdditionalProperties != nil {
		messages(s.AdditionalProperties.Structural, out)
	}
}

// What policies are refused for is told in the docs in the same words, and
// nothing else.
func TestRefusalsAreTold(t *testing.T) {
	docs, err := os.ReadFile("../../../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## What is refused\n")
	section, _, _ = strings.Cut(section, "\n## ")
	// The plugin of admission says this one, which is no rule of the schema.
	all := map[string]bool{"weightPreference: use either staticWeightList or dynamicWeight": true}
	kinds := definitions(t)
	for _, name := range []string{"PropagationPolicy", "ClusterPropagationPolicy", "OverridePolicy", "ClusterOverridePolicy"} {
		messages(kinds[name].structural, all)
	}
	if len(all) < 10 {
		t.Fatalf("only %d rules found", len(all))
	}
	for message := range all {
		if !strings.Contains(section, "| "+message+" |") {
			t.Errorf("not in docs/policies.md: %s", message)
		}
	}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 2 || strings.HasPrefix(cells[0], "| Value") {
			continue
		}
		if message := strings.TrimSuffix(cells[1], " |"); !all[message] {
			t.Errorf("nothing is refused with: %s", message)
		}
	}
}
