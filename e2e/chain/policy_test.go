package chain

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// written as users of Karmada have them in their files.
var files = map[string]struct {
	resource string
	text     string
}{
	"PropagationPolicy": {"propagationpolicies", `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: nginx-propagation}
spec:
  conflictResolution: Overwrite
  priority: 10
  preemption: Never
  propagateDeps: true
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment, name: nginx}
  - apiVersion: v1
    kind: Service
    labelSelector: {matchLabels: {app: nginx}, matchExpressions: [{key: tier, operator: In, values: [web]}]}
  placement:
    clusterAffinity:
      clusterNames: [member1, member2]
      exclude: [member3]
      labelSelector: {matchLabels: {location: us}}
      fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]}]}
    clusterTolerations: [{key: example.com/maintenance, operator: Exists, effect: NoSchedule}]
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [member1]}, weight: 1}
        - {targetCluster: {clusterNames: [member2]}, weight: 2}
`},
	"ClusterPropagationPolicy": {"clusterpropagationpolicies", `
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: foo-propagation}
spec:
  resourceSelectors: [{apiVersion: example.com/v1, kind: Foo, namespace: team-a, name: bar}]
  placement:
    clusterAffinity: {clusterNames: [member1]}
    spreadConstraints: [{spreadByField: cluster, minGroups: 1, maxGroups: 2}]
    replicaScheduling: {replicaSchedulingType: Duplicated}
`},
	"OverridePolicy": {"overridepolicies", `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: nginx-override}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: nginx}]
  overrideRules:
  - targetCluster: {clusterNames: [member1]}
    overriders:
      imageOverrider: [{component: Registry, operator: replace, value: registry.example.com}]
      commandOverrider: [{containerName: nginx, operator: add, value: ["--debug"]}]
      argsOverrider: [{containerName: nginx, operator: remove, value: ["-v"]}]
      labelsOverrider: [{operator: add, value: {env: test}}]
      annotationsOverrider: [{operator: replace, value: {team: a}}]
      plaintext: [{path: /spec/template/spec/priorityClassName, operator: add, value: high}]
`},
	"ClusterOverridePolicy": {"clusteroverridepolicies", `
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: everything-override}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: nowhere}]
  overrideRules:
  - targetCluster: {labelSelector: {matchLabels: {env: test}}}
    overriders: {labelsOverrider: [{operator: add, value: {env: test}}]}
`},
}

// Files that users have are taken as they are, and come back as they were.
func TestPublishedPolicies(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	client, err := dynamic.NewForConfig(labtest.Config(t, world.System))
	if err != nil {
		t.Fatal(err)
	}
	for kind, file := range files {
		t.Run(kind, func(t *testing.T) {
			var want map[string]any
			if err := yaml.Unmarshal([]byte(file.text), &want); err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: want}
			var api dynamic.ResourceInterface = client.Resource(schema.GroupVersionResource{Group: "policy.karmada.io", Version: "v1alpha1", Resource: file.resource})
			if strings.HasPrefix(kind, "Cluster") {
				u.SetName(labtest.UniqueName(t, u.GetName()))
			} else {
				api = client.Resource(schema.GroupVersionResource{Group: "policy.karmada.io", Version: "v1alpha1", Resource: file.resource}).Namespace(ns)
			}
			labtest.MustKubectl(t, world.System.Kubeconfig(), string(encoded(t, u.Object)), "-n", ns, "create", "--validate=strict", "-f", "-")
			t.Cleanup(func() {
				labtest.Kubectl(t, world.System.Kubeconfig(), "", "-n", ns, "delete", file.resource, u.GetName())
			})
			got, err := api.Get(t.Context(), u.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// What is added are defaults; nothing is lost or changed.
			if path := lost(want["spec"], got.Object["spec"], "spec"); path != "" {
				t.Errorf("%s is not what was written", path)
			}
		})
	}
}

// lost is the path of the first value of want that got does not have.
func lost(want, got any, path string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return path
		}
		for k, v := range w {
			if p := lost(v, g[k], path+"."+k); p != "" {
				return p
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return path
		}
		for i := range w {
			if p := lost(w[i], g[i], path); p != "" {
				return p
			}
		}
		return ""
	case float64:
		if g, ok := got.(int64); ok {
			got = float64(g)
		}
	}
	if !equality.Semantic.DeepEqual(want, got) {
		return path
	}
	return ""
}

// published are objects that others write and read; the server is asked what it
// would make of them.
var published = map[string]string{
	"Cluster": `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member-of-a-file, labels: {location: us}}
spec:
  syncMode: Push
  apiEndpoint: https://member1.example.com:6443
  secretRef: {namespace: isthmus-system, name: member1}
  impersonatorSecretRef: {namespace: isthmus-system, name: member1-impersonator}
  provider: aws
  region: us-east-1
  zones: [a, b]
  taints: [{key: example.com/maintenance, value: "1", effect: NoSchedule}]
`,
	"ResourceBinding": `
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {name: nginx-deployment}
spec:
  resource: {apiVersion: apps/v1, kind: Deployment, namespace: NS, name: nginx, uid: 6b2e}
  replicas: 3
  clusters: [{name: member1, replicas: 1}, {name: member2, replicas: 2}]
  conflictResolution: Abort
`,
	"ClusterResourceBinding": `
apiVersion: work.karmada.io/v1alpha2
kind: ClusterResourceBinding
metadata: {name: reader-clusterrole}
spec:
  resource: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: reader, uid: 6b2e}
  clusters: [{name: member1}, {name: member2}]
`,
}

// Clusters and bindings have the form that clients of theirs know.
func TestPublishedObjects(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for kind, text := range published {
		text = strings.ReplaceAll(text, "NS", ns)
		out := labtest.MustKubectl(t, world.System.Kubeconfig(), text, "-n", ns, "create", "--validate=strict", "--dry-run=server", "-o", "json", "-f", "-")
		var want, got map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(text), &want), json.Unmarshal([]byte(out), &got)); err != nil {
			t.Fatal(err)
		}
		if path := lost(want["spec"], got["spec"], "spec"); path != "" {
			t.Errorf("%s: %s is not what was written:\n%s", kind, path, out)
		}
	}
	// A clusters' proxy and a binding's status are there as subresources.
	for _, path := range []string{
		"/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/version",
		"/apis/cluster.karmada.io/v1alpha1/clusters/m1/status",
	} {
		if a := ask(t, labtest.Config(t, world.System), "GET", path, nil); a.code != 200 {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// What is not supported is refused by name, and what nobody knows as well.
func TestUnsupportedFields(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	base := func(change map[string]any) string {
		spec := map[string]any{"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}}
		maps.Copy(spec, change)
		return string(encoded(t, map[string]any{
			"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
			"metadata": map[string]any{"name": "refused"}, "spec": spec,
		}))
	}
	for field, change := range map[string]map[string]any{
		"resourceSelectors":     {"resourceSelectors": []any{}},
		"failover":              {"failover": map[string]any{"cluster": map[string]any{"purgeMode": "Never"}}},
		"noSuchField":           {"noSuchField": 1},
		"preemption":            {"preemption": "Perhaps"},
		"conflictResolution":    {"conflictResolution": "Guess"},
		"spreadByField":         {"placement": map[string]any{"spreadConstraints": []any{map[string]any{"spreadByField": "planet", "minGroups": 1}}}},
		"replicaSchedulingType": {"placement": map[string]any{"replicaScheduling": map[string]any{"replicaSchedulingType": "Magic"}}},
	} {
		res := labtest.Kubectl(t, world.System.Kubeconfig(), base(change), "-n", ns, "create", "--validate=strict", "-f", "-")
		if res.Code == 0 || !strings.Contains(res.Err, field) {
			t.Errorf("%s: exit %d, %s", field, res.Code, res.Err)
		}
	}
}
