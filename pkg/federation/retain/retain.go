// Package retain turns a template into what a member is told: it takes out
// what belongs to the control plane alone, and what an API server or a
// controller has filled in and every member must fill in for itself.
//
// Nothing has to be copied back from the member: copies are written by
// server-side apply, which leaves alone what is not spoken of.
//
//	template (as stored) -> Unallocated -> Strip -> what is applied
package retain

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// annotations that controllers or clients keep for one cluster.
var localAnnotations = map[string]bool{
	"kubectl.kubernetes.io/last-applied-configuration": true,
	"deployment.kubernetes.io/revision":                true,
	"deployment.kubernetes.io/revision-history":        true,
	"deployment.kubernetes.io/desired-replicas":        true,
	"deployment.kubernetes.io/max-replicas":            true,
	"deprecated.daemonset.template.generation":         true,
	"deprecated.deployment.rollback.to":                true,
	"pv.kubernetes.io/bind-completed":                  true,
	"pv.kubernetes.io/bound-by-controller":             true,
	"volume.kubernetes.io/selected-node":               true,
	"volume.kubernetes.io/storage-provisioner":         true,
	"volume.beta.kubernetes.io/storage-provisioner":    true,
	"autoscaling.alpha.kubernetes.io/conditions":       true,
	"autoscaling.alpha.kubernetes.io/current-metrics":  true,
	"control-plane.alpha.kubernetes.io/leader":         true,
	"propagationpolicy.karmada.io/name":                true,
	"propagationpolicy.karmada.io/namespace":           true,
	"clusterpropagationpolicy.karmada.io/name":         true,
	"work.karmada.io/conflict-resolution":              true,
	"resourcebinding.karmada.io/dependencies":          true,
	"isthmus.dev/original-name":                        true,
	"kubernetes.io/service-account.uid":                true,
	"endpoints.kubernetes.io/last-change-trigger-time": true,
	"clusterpropagationpolicy.karmada.io/permanent-id": true,
	"propagationpolicy.karmada.io/permanent-id":        true,
	"resourcetemplate.karmada.io/managed-annotations":  true,
	"resourcetemplate.karmada.io/managed-labels":       true,
}

// labels that tie an object to one cluster.
var localLabels = map[string]bool{
	"kubernetes.io/metadata.name":                      true,
	"propagationpolicy.karmada.io/permanent-id":        true,
	"clusterpropagationpolicy.karmada.io/permanent-id": true,
	marks.BindingID:        true,
	marks.ClusterBindingID: true,
}

// Strip removes from an object, which the caller owns, what must not travel.
func Strip(obj *unstructured.Unstructured) {
	stripMetadata(obj)
	unstructured.RemoveNestedField(obj.Object, "status")
	if f, ok := perKind[obj.GroupVersionKind().GroupKind()]; ok {
		f(obj.Object)
	}
	dropNulls(obj.Object)
}

func stripMetadata(obj *unstructured.Unstructured) {
	meta := map[string]any{"name": obj.GetName()}
	if ns := obj.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	if l := keep(obj.GetLabels(), localLabels, toolLabels); len(l) > 0 {
		meta["labels"] = l
	}
	if a := keep(obj.GetAnnotations(), localAnnotations, toolAnnotations); len(a) > 0 {
		meta["annotations"] = a
	}
	obj.Object["metadata"] = meta
}

func keep(in map[string]string, local, tools map[string]bool) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		if !local[k] && !ofTool(k, tools) && !strings.HasPrefix(k, marks.Prefix) {
			out[k] = v
		}
	}
	return out
}

var perKind = map[schema.GroupKind]func(map[string]any){
	{Kind: "Service"}:                    stripService,
	{Kind: "ServiceAccount"}:             func(o map[string]any) { delete(o, "secrets") },
	{Kind: "PersistentVolumeClaim"}:      func(o map[string]any) { remove(o, "spec", "volumeName") },
	{Kind: "PersistentVolume"}:           func(o map[string]any) { remove(o, "spec", "claimRef") },
	{Kind: "Namespace"}:                  func(o map[string]any) { delete(o, "spec") },
	{Group: "batch", Kind: "Job"}:        stripJob,
	{Group: "batch", Kind: "CronJob"}:    stripCronJob,
	{Group: "apps", Kind: "Deployment"}:  stripPodTemplate,
	{Group: "apps", Kind: "DaemonSet"}:   stripPodTemplate,
	{Group: "apps", Kind: "ReplicaSet"}:  stripPodTemplate,
	{Kind: "ReplicationController"}:      stripPodTemplate,
	{Group: "apps", Kind: "StatefulSet"}: stripStatefulSet,
}

func remove(o map[string]any, path ...string) { unstructured.RemoveNestedField(o, path...) }

func stripService(o map[string]any) {
	spec, ok := o["spec"].(map[string]any)
	if !ok {
		return
	}
	delete(spec, "clusterIPs")
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
	}
}

func stripCronJob(o map[string]any) {
	template, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "jobTemplate", "spec", "template", "spec")
	if spec, ok := template.(map[string]any); ok {
		resolveDuplicates(spec)
	}
}

func stripPodTemplate(o map[string]any) {
	template, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "template", "spec")
	if spec, ok := template.(map[string]any); ok {
		resolveDuplicates(spec)
	}
}

func stripStatefulSet(o map[string]any) {
	stripPodTemplate(o)
	claims, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "volumeClaimTemplates")
	list, _ := claims.([]any)
	for _, c := range list {
		if claim, ok := c.(map[string]any); ok {
			delete(claim, "status")
		}
	}
}

// resolveDuplicates: the API stores lists with duplicate keys, server-side
// apply refuses them. The last one is the one that counts at run time.
func resolveDuplicates(podSpec map[string]any) {
	lastWins(podSpec, "hostAliases", "ip")
	lastWins(podSpec, "imagePullSecrets", "name")
	for _, field := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, _ := podSpec[field].([]any)
		for _, c := range list {
			if container, ok := c.(map[string]any); ok {
				lastWins(container, "env", "name")
				lastWins(container, "ports", "containerPort", "protocol")
			}
		}
	}
}

func lastWins(parent map[string]any, field string, keys ...string) {
	list, _ := parent[field].([]any)
	if len(list) < 2 {
		return
	}
	type key [2]any
	seen := map[key]bool{}
	out := make([]any, 0, len(list))
	for _, item := range slices.Backward(list) {
		m, ok := item.(map[string]any)
		if !ok {
			return
		}
		var k key
		for i, name := range keys {
			switch v := m[name].(type) {
			case string, int64, float64:
				k[i] = v
			}
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, item)
		}
	}
	slices.Reverse(out)
	parent[field] = out
}

// dropNulls removes null members: to server-side apply they are claims.
func dropNulls(v any) {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			if e == nil {
				delete(t, k)
				continue
			}
			dropNulls(e)
		}
	case []any:
		for _, e := range t {
			dropNulls(e)
		}
	}
}
