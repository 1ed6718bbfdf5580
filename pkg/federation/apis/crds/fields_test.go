package crds

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// leaves are types whose fields are Kubernetes' own.
var leaves = []reflect.Type{
	reflect.TypeFor[metav1.LabelSelector](), reflect.TypeFor[corev1.Toleration](), reflect.TypeFor[apiextensionsv1.JSON](),
	reflect.TypeFor[policyv1alpha1.ClusterAffinity](),
}

// paths of all fields of a type, by their names in JSON.
func paths(t reflect.Type, at string, out map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && !slices.Contains(leaves, t) {
		fieldsOf(t, at, out)
	}
}

func fieldsOf(t reflect.Type, at string, out map[string]bool) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "inline" {
			fieldsOf(f.Type, at, out)
			continue
		}
		path := strings.TrimPrefix(at+"."+name, ".")
		out[path] = true
		paths(f.Type, path, out)
	}
}

// samples has, for every field, a value that is accepted, or "" where it is among
// the refused, or a part of what another field shows.
var samples = map[string]string{
	"resourceSelectors":                        "",
	"resourceSelectors.apiVersion":             "",
	"resourceSelectors.kind":                   "",
	"resourceSelectors.namespace":              "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: d}]",
	"resourceSelectors.name":                   "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: app}]",
	"resourceSelectors.labelSelector":          "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {a: b}}}]",
	"association":                              "association: false",
	"propagateDeps":                            "propagateDeps: true",
	"priority":                                 "priority: 3",
	"preemption":                               "preemption: Always",
	"dependentOverrides":                       "dependentOverrides: [a]",
	"schedulerName":                            "schedulerName: default-scheduler",
	"failover":                                 "",
	"failover.cluster":                         "",
	"failover.cluster.tolerationSeconds":       "failover: {cluster: {tolerationSeconds: 3}}",
	"failover.cluster.purgeMode":               "failover: {cluster: {purgeMode: Gracefully}}",
	"failover.cluster.statePreservation":       "",
	"failover.cluster.statePreservation.rules": "failover: {cluster: {statePreservation: {rules: [{aliasLabelName: failover.example.com/ready, jsonPath: '{.readyReplicas}'}]}}}",
	"failover.cluster.statePreservation.rules.aliasLabelName":                                "",
	"failover.cluster.statePreservation.rules.jsonPath":                                      "",
	"failover.application":                                                                   "",
	"failover.application.decisionConditions":                                                "",
	"failover.application.decisionConditions.tolerationSeconds":                              "failover: {application: {decisionConditions: {tolerationSeconds: 3}}}",
	"failover.application.purgeMode":                                                         "failover: {application: {purgeMode: Graciously}}",
	"failover.application.gracePeriodSeconds":                                                "failover: {application: {gracePeriodSeconds: 30}}",
	"failover.application.statePreservation":                                                 "",
	"failover.application.statePreservation.rules":                                           "failover: {application: {statePreservation: {rules: [{aliasLabelName: a, jsonPath: '{.x}'}]}}}",
	"failover.application.statePreservation.rules.aliasLabelName":                            "",
	"failover.application.statePreservation.rules.jsonPath":                                  "",
	"conflictResolution":                                                                     "conflictResolution: Overwrite",
	"activationPreference":                                                                   "activationPreference: Lazy",
	"suspension":                                                                             "",
	"suspension.dispatching":                                                                 "suspension: {dispatching: true}",
	"suspension.dispatchingOnClusters":                                                       "",
	"suspension.dispatchingOnClusters.clusterNames":                                          "suspension: {dispatchingOnClusters: {clusterNames: [a]}}",
	"preserveResourcesOnDeletion":                                                            "preserveResourcesOnDeletion: true",
	"schedulePriority":                                                                       "",
	"schedulePriority.priorityClassSource":                                                   "schedulePriority: {priorityClassSource: PodPriorityClass}",
	"schedulePriority.priorityClassName":                                                     "schedulePriority: {priorityClassName: high}",
	"placement":                                                                              "",
	"placement.clusterAffinity":                                                              "placement: {clusterAffinity: {clusterNames: [a], exclude: [b], labelSelector: {matchLabels: {a: b}}, fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [z]}]}}}",
	"placement.clusterAffinities":                                                            "",
	"placement.clusterAffinities.affinityName":                                               "placement: {clusterAffinities: [{affinityName: a, clusterNames: [x]}, {affinityName: b}]}",
	"placement.clusterAffinities.labelSelector":                                              "placement: {clusterAffinities: [{affinityName: a, labelSelector: {matchLabels: {a: b}}}]}",
	"placement.clusterAffinities.fieldSelector":                                              "placement: {clusterAffinities: [{affinityName: a, fieldSelector: {matchExpressions: [{key: region, operator: In, values: [r]}]}}]}",
	"placement.clusterAffinities.fieldSelector.matchExpressions":                             "",
	"placement.clusterAffinities.fieldSelector.matchExpressions.key":                         "",
	"placement.clusterAffinities.fieldSelector.matchExpressions.operator":                    "",
	"placement.clusterAffinities.fieldSelector.matchExpressions.values":                      "",
	"placement.clusterAffinities.clusterNames":                                               "placement: {clusterAffinities: [{affinityName: a, clusterNames: [x]}]}",
	"placement.clusterAffinities.exclude":                                                    "placement: {clusterAffinities: [{affinityName: a, exclude: [x]}]}",
	"placement.clusterAffinities.overflowAffinities.affinityName":                            "",
	"placement.clusterAffinities.overflowAffinities.labelSelector":                           "",
	"placement.clusterAffinities.overflowAffinities.clusterNames":                            "",
	"placement.clusterAffinities.overflowAffinities.exclude":                                 "",
	"placement.clusterAffinities.overflowAffinities.fieldSelector":                           "",
	"placement.clusterAffinities.overflowAffinities.fieldSelector.matchExpressions":          "",
	"placement.clusterAffinities.overflowAffinities.fieldSelector.matchExpressions.key":      "",
	"placement.clusterAffinities.overflowAffinities.fieldSelector.matchExpressions.operator": "",
	"placement.clusterAffinities.overflowAffinities.fieldSelector.matchExpressions.values":   "",
	"placement.clusterAffinities.overflowAffinities":                                         "placement: {clusterAffinities: [{affinityName: a, overflowAffinities: [{affinityName: b, clusterNames: [x]}]}]}",
	"placement.clusterTolerations":                                                           "placement: {clusterTolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 3}]}",
	"placement.spreadConstraints":                                                            "",
	"placement.spreadConstraints.spreadByField":                                              "placement: {spreadConstraints: [{spreadByField: region, minGroups: 2}, {spreadByField: cluster}]}",
	"placement.spreadConstraints.spreadByLabel":                                              "placement: {spreadConstraints: [{spreadByLabel: rack}]}",
	"placement.spreadConstraints.maxGroups":                                                  "placement: {spreadConstraints: [{spreadByField: zone, maxGroups: 2}]}",
	"placement.spreadConstraints.minGroups":                                                  "placement: {spreadConstraints: [{spreadByField: provider, minGroups: 2}]}",
	"placement.replicaScheduling":                                                            "placement: {replicaScheduling: {}}",
	"placement.replicaScheduling.replicaSchedulingType":                                      "placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}",
	"placement.replicaScheduling.replicaDivisionPreference":                                  "placement: {replicaScheduling: {replicaDivisionPreference: Aggregated}}",
	"placement.replicaScheduling.weightPreference":                                           "",
	"placement.replicaScheduling.weightPreference.staticWeightList":                          "placement: {replicaScheduling: {weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 2}]}}}",
	"placement.replicaScheduling.weightPreference.staticWeightList.targetCluster":            "",
	"placement.replicaScheduling.weightPreference.staticWeightList.weight":                   "",
	"placement.replicaScheduling.weightPreference.dynamicWeight":                             "placement: {replicaScheduling: {weightPreference: {dynamicWeight: AvailableReplicas}}}",
	"placement.workloadAffinity":                                                             "",
	"placement.workloadAffinity.affinity":                                                    "",
	"placement.workloadAffinity.affinity.groupByLabelKey":                                    "placement: {workloadAffinity: {affinity: {groupByLabelKey: g}}}",
	"placement.workloadAffinity.antiAffinity":                                                "",
	"placement.workloadAffinity.antiAffinity.groupByLabelKey":                                "placement: {workloadAffinity: {antiAffinity: {groupByLabelKey: g}}}",
}

// exclusive fields are refused together.
var exclusive = [][2]string{
	{"placement.clusterAffinity", "placement.clusterAffinities"},
	{"suspension.dispatching", "suspension.dispatchingOnClusters"},
	{"placement.replicaScheduling.replicaDivisionPreference", "placement.replicaScheduling.weightPreference"},
}

func excluded(a, b string) bool {
	for _, x := range exclusive {
		within := func(path, field string) bool { return path == field || strings.HasPrefix(path, field+".") }
		if within(a, x[0]) && within(b, x[1]) || within(a, x[1]) && within(b, x[0]) {
			return true
		}
	}
	return false
}

// merged puts b into a; a list of b replaces one of a.
func merged(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for k, v := range b {
		x, isMap := out[k].(map[string]any)
		if y, ok := v.(map[string]any); ok && isMap {
			v = merged(x, y)
		}
		out[k] = v
	}
	return out
}

// Every field is accepted, or refused by its name, and told in the docs.
func TestEveryFieldIsDecided(t *testing.T) {
	all := map[string]bool{}
	paths(reflect.TypeFor[policyv1alpha1.PropagationSpec](), "", all)
	docs, err := os.ReadFile("../../../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	for path := range all {
		sample, known := samples[path]
		if !known {
			t.Errorf("spec.%s is a field that nobody has decided on", path)
		}
		parts := strings.Split(path, ".")
		if sample != "" && !strings.Contains(string(docs), parts[len(parts)-1]) {
			t.Errorf("spec.%s is not in docs/policies.md", path)
		}
	}
	for path := range samples {
		if !all[path] {
			t.Errorf("spec.%s is no field any more", path)
		}
	}
	overrides := map[string]bool{}
	paths(reflect.TypeFor[policyv1alpha1.OverrideSpec](), "", overrides)
	for path := range overrides {
		name := path[strings.LastIndex(path, ".")+1:]
		if strings.HasPrefix(path, "overriders.") && !strings.Contains(path[len("overriders."):], ".") && !strings.Contains(string(docs), "`"+name+"`") {
			t.Errorf("spec.%s is not in docs/policies.md", path)
		}
	}
}

// Policies with any two fields are accepted, but for those that exclude each
// other, which are refused.
func TestFieldsPairwise(t *testing.T) {
	policy := definitions(t)["PropagationPolicy"]
	pairs := 0
	base := map[string]any{"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}}
	for _, a := range slices.Sorted(maps.Keys(samples)) {
		for _, b := range slices.Sorted(maps.Keys(samples)) {
			if a >= b || samples[a] == "" || samples[b] == "" {
				continue
			}
			pairs++
			spec := merged(merged(base, object(t, samples[a])), object(t, samples[b]))
			doc := fmt.Sprint(spec)
			errs := policy.judge(t, map[string]any{"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": map[string]any{"name": "x"}, "spec": spec})
			if (len(errs) > 0) != excluded(a, b) {
				t.Errorf("%s with %s: %v\n%s", a, b, errs.ToAggregate(), doc)
			}
		}
	}
	if pairs < 500 {
		t.Errorf("only %d pairs", pairs)
	}
}
