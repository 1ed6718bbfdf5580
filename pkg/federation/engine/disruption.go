package engine

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/disruption"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

var budgetKind = schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}

// divideBudget decides every cluster's part of a PodDisruptionBudget by the
// replicas of the divided workloads that it selects.
func (e *Engine) divideBudget(t *template, d *decision) {
	var b struct {
		Spec struct {
			Selector       *metav1.LabelSelector `json:"selector"`
			MinAvailable   *intstr.IntOrString   `json:"minAvailable"`
			MaxUnavailable *intstr.IntOrString   `json:"maxUnavailable"`
		} `json:"spec"`
	}
	if json.Unmarshal(t.raw, &b) != nil {
		return // the API server has let it pass
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return
	}
	replicas := e.selectedReplicas(t.Namespace, selector)
	d.disruption = map[string]map[string]int32{}
	for field, value := range map[string]*intstr.IntOrString{"minAvailable": b.Spec.MinAvailable, "maxUnavailable": b.Spec.MaxUnavailable} {
		if parts := disruption.Divide(value, replicas, t.UID); parts != nil {
			d.disruption[field] = parts
		}
	}
}

// selectedReplicas sums up, by cluster, the divided workloads whose Pods are
// selected; nothing when one of them is there in full in every cluster.
func (e *Engine) selectedReplicas(namespace string, selector labels.Selector) map[string]int32 {
	out := map[string]int32{}
	for _, gk := range []schema.GroupKind{deploymentKind, {Group: "apps", Kind: "StatefulSet"}} {
		w := e.kindOf(gk)
		if w == nil {
			continue
		}
		objs, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			continue
		}
		for _, obj := range objs {
			t, ok := obj.(*template)
			if !ok || t.DeletionTimestamp != nil || !selector.Matches(podLabels(t)) {
				continue
			}
			b := e.bindings.get(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
			if b == nil {
				continue
			}
			if !spreads(b.Spec.Placement) {
				return nil
			}
			for _, c := range b.Spec.Clusters {
				out[c.Name] += c.Replicas
			}
		}
	}
	return out
}

func podLabels(t *template) labels.Set {
	var o struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	if json.Unmarshal(t.raw, &o) != nil {
		return nil
	}
	return o.Spec.Template.Metadata.Labels
}

// enqueueBudgets looks again at the budgets of a namespace whose workloads have
// moved.
func (e *Engine) enqueueBudgets(key marks.Key) {
	w := e.kindOf(budgetKind)
	if w == nil || !divisible(key.GroupKind()) {
		return
	}
	objs, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, key.Namespace)
	if err != nil {
		return
	}
	for _, obj := range objs {
		if t, ok := obj.(*template); ok {
			e.templateQueue.Add(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
		}
	}
}
