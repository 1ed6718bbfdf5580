package engine

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// adopts are the kinds whose controller takes over Pods that nobody owns, or
// ReplicaSets.
var adopts = map[schema.GroupKind]bool{
	replicaSetKind: true, {Kind: "ReplicationController"}: true, {Group: "apps", Kind: "StatefulSet"}: true, deploymentKind: true,
}

// adoptable is what a new template will adopt, as replicas held.
func (e *Engine) adoptable(t *template) []placement.Target {
	selector, err := t.podSelector()
	if err != nil || selector == "" {
		return nil // without a selector nothing is adopted
	}
	var ready []string
	for _, m := range e.memberList() {
		if m.info().Ready {
			ready = append(ready, m.name)
		}
	}
	return heldByPods(e.cfg.Unowned(t.Kind, t.Namespace, selector), ready, t.replicas)
}

// heldByPods takes Pods for replicas, not more than are asked for.
func heldByPods(counts map[string]int32, ready []string, replicas int32) []placement.Target {
	var out []placement.Target
	for _, cluster := range ready {
		if n := min(counts[cluster], replicas); n > 0 {
			out = append(out, placement.Target{Cluster: cluster, Replicas: n})
			replicas -= n
		}
	}
	return out
}

// podSelector reads both forms: that of ReplicaSets, and the plain map of
// ReplicationControllers.
func (t *template) podSelector() (string, error) {
	var o struct {
		Spec struct {
			Selector json.RawMessage `json:"selector"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(t.raw, &o); err != nil || len(o.Spec.Selector) == 0 {
		return "", err
	}
	if t.Kind == "ReplicationController" {
		var set map[string]string
		err := json.Unmarshal(o.Spec.Selector, &set)
		return labels.SelectorFromSet(set).String(), err
	}
	var s metav1.LabelSelector
	if err := json.Unmarshal(o.Spec.Selector, &s); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}
