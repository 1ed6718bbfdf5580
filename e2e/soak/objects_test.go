package soak

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/e2e/soak/judge"
)

// numbered is the annotation that numbers the contents of an object.
const numbered = "soak.example.com/n"

var kindNames = []string{"ConfigMap", "Deployment", "Service"}

var resources = map[string]schema.GroupVersionResource{
	"ConfigMap":  {Version: "v1", Resource: "configmaps"},
	"Service":    {Version: "v1", Resource: "services"},
	"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"},
	judge.Policy: {Group: "policy.karmada.io", Version: "v1alpha1", Resource: "propagationpolicies"},
}

// content makes the next content of an object, and what is logged of it.
func (w *worker) content(key judge.Key) (*unstructured.Unstructured, judge.Write) {
	n := w.n[key]
	entry := judge.Write{Key: key, N: n}
	gvr := resources[key.Kind]
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(gvr.GroupVersion().String())
	u.SetKind(key.Kind)
	u.SetName(key.Name)
	u.SetNamespace(w.ns)
	u.SetAnnotations(map[string]string{numbered: strconv.FormatInt(n, 10)})
	app := map[string]any{"app": key.Name}
	switch key.Kind {
	case "ConfigMap":
		u.Object["data"] = map[string]any{"n": strconv.FormatInt(n, 10), "key-" + strconv.Itoa(w.rand.IntN(3)): "there"}
	case "Service":
		u.Object["spec"] = map[string]any{"selector": app, "ports": []any{map[string]any{"port": 8000 + n%100}}}
	case "Deployment":
		entry.Replicas = int64(w.rand.IntN(5))
		u.Object["spec"] = map[string]any{
			"replicas": entry.Replicas, "selector": map[string]any{"matchLabels": app},
			"template": map[string]any{
				"metadata": map[string]any{"labels": app},
				"spec": map[string]any{
					"terminationGracePeriodSeconds": int64(0),
					"containers":                    []any{map[string]any{"name": "c", "image": fmt.Sprintf("registry.example.com/c:%d", n/4)}},
				},
			},
		}
	case judge.Policy:
		entry.Clusters, entry.Divided = w.somewhere()
		u.Object["spec"] = policySpec(key.Name, entry.Clusters, entry.Divided)
	}
	return u, entry
}

// somewhere is one cluster at least.
func (w *worker) somewhere() (clusters []string, divided bool) {
	set := 1 + w.rand.IntN(1<<len(names)-1)
	for i, name := range names {
		if set&(1<<i) != 0 {
			clusters = append(clusters, name)
		}
	}
	return clusters, w.rand.IntN(2) == 0
}

func policySpec(name string, clusters []string, divided bool) map[string]any {
	var selectors, list []any
	for _, kind := range kindNames {
		selectors = append(selectors, map[string]any{"apiVersion": resources[kind].GroupVersion().String(), "kind": kind, "name": name})
	}
	for _, c := range clusters {
		list = append(list, c)
	}
	scheduling := map[string]any{"replicaSchedulingType": "Duplicated"}
	if divided {
		var weights []any
		for _, c := range clusters {
			weights = append(weights, map[string]any{"targetCluster": map[string]any{"clusterNames": []any{c}}, "weight": int64(1)})
		}
		scheduling = map[string]any{
			"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
			"weightPreference": map[string]any{"staticWeightList": weights},
		}
	}
	return map[string]any{
		"resourceSelectors": selectors,
		"placement":         map[string]any{"clusterAffinity": map[string]any{"clusterNames": list}, "replicaScheduling": scheduling},
	}
}

// numberOf is the number of an object's content, -1 when it has none.
func numberOf(u *unstructured.Unstructured) int64 {
	n, err := strconv.ParseInt(u.GetAnnotations()[numbered], 10, 64)
	if err != nil {
		return -1
	}
	return n
}
