package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// Previewer renders without an engine: what a cluster is told about a template,
// as a binding says. Bounds of autoscalers and PodDisruptionBudgets, which other
// objects decide, stay as the template has them.
type Previewer struct {
	Template    *unstructured.Unstructured
	Binding     workv1alpha2.ResourceBindingSpec
	Overrides   override.Rules
	Interpreter *interpreter.Interpreter
	// There is what the cluster has already, if it is known.
	There *unstructured.Unstructured
}

// Render is what the cluster is told, without the marks of a copy.
func (p Previewer) Render(cluster *placement.Cluster) (*unstructured.Unstructured, error) {
	obj, err := transformTemplate(p.Template.DeepCopy())
	if err != nil {
		return nil, err
	}
	t, ok := obj.(*template)
	if !ok {
		return nil, fmt.Errorf("%w: not a template", errStale)
	}
	key := marks.Key{GroupVersionKind: p.Template.GroupVersionKind(), Namespace: t.Namespace, Name: t.Name}
	d := &decision{uid: t.UID, content: t.content, targets: map[string]int32{}, overrides: p.Overrides}
	for _, c := range p.Binding.Clusters {
		d.targets[c.Name] = c.Replicas
	}
	gk := key.GroupKind()
	if !divisible(gk) && p.Interpreter.Divides(key.GroupVersionKind) {
		d.revise = (&Engine{interpreter: p.Interpreter}).reviser(key.GroupVersionKind)
	}
	d.divided = p.Binding.Placement != nil && (divisible(gk) || d.revise != nil)
	d.spread = d.divided && spreads(p.Binding.Placement)
	if gk == deploymentKind && d.spread && len(d.targets) > 1 {
		if d.shares, err = previewShares(t, d); err != nil {
			return nil, err
		}
	}
	r, err := render("", 0, key, t, d, cluster)
	if err != nil {
		return nil, err
	}
	if p.There != nil {
		there := &copyRecord{selects: types.UID(retain.Selects(p.There))}
		if err := r.conform(t, there); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if r.divided {
		if err := unstructured.SetNestedField(r.object.Object, int64(r.replicas), "spec", "replicas"); err != nil {
			return nil, fmt.Errorf("replicas of %s: %w", key, err)
		}
	}
	unmark(r.object)
	return r.object, nil
}

// previewShares divides a Deployment's budget by the replicas decided.
func previewShares(t *template, d *decision) (map[string]rollout.Budget, error) {
	var s struct {
		Spec struct {
			Strategy strategy `json:"strategy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(t.raw, &s); err != nil {
		return nil, fmt.Errorf("strategy of %s: %w", t.Name, err)
	}
	if s.Spec.Strategy.Type == "Recreate" {
		return nil, nil
	}
	d.strategy = s.Spec.Strategy
	var whole int32
	for _, n := range d.targets {
		whole += n
	}
	b, err := d.budget(whole)
	if err != nil {
		return nil, fmt.Errorf("strategy of %s: %w", t.Name, err)
	}
	return rollout.Split(b, d.targets, t.UID), nil
}

// unmark takes the marks of a copy off an object.
func unmark(u *unstructured.Unstructured) {
	without := func(set map[string]string) map[string]string {
		out := maps.Clone(set)
		maps.DeleteFunc(out, func(k, _ string) bool { return isMark(k) })
		if len(out) == 0 {
			return nil
		}
		return out
	}
	u.SetLabels(without(u.GetLabels()))
	u.SetAnnotations(without(u.GetAnnotations()))
}

// BindingNames are the names that the binding of a template may have.
func BindingNames(gvk schema.GroupVersionKind, namespace, name string) []string {
	key := marks.Key{GroupVersionKind: gvk, Namespace: namespace, Name: name}
	return slices.Compact([]string{bindingName(key, false), bindingName(key, true)})
}
