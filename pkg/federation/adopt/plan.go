package adopt

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// ConflictAnnotation asks, with the value "overwrite", to take over what is
// there.
const ConflictAnnotation = "work.karmada.io/conflict-resolution"

// lastApplied is what kubectl compares with; on the template it lets the owner
// of a manifest go on with `kubectl apply` at the endpoint.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Copy is the object of one cluster.
type Copy struct {
	Cluster string
	Object  *unstructured.Unstructured
}

// Plan is how one object, in all its clusters, becomes a template.
type Plan struct {
	Template *unstructured.Unstructured
	// Clusters in the order given.
	Clusters []string
	// Replicas by cluster, where they are divided.
	Replicas map[string]int32
	// Overrides by cluster: what differs from the template there.
	Overrides map[string][]policyv1alpha1.PlaintextOverrider
}

// Limits of the policies that a plan becomes.
const (
	maxOverriders = 128
	fieldReplicas = "replicas"
)

var divisible = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}:  true,
	{Group: "apps", Kind: "StatefulSet"}: true,
}

// Make plans. The first cluster's object becomes the template, what differs in
// the others becomes overrides; an error says which fields cannot.
func Make(copies []Copy) (*Plan, error) {
	if len(copies) == 0 {
		return nil, fmt.Errorf("%w: it is in none of the clusters", ErrRefused)
	}
	p := &Plan{Overrides: map[string][]policyv1alpha1.PlaintextOverrider{}}
	var bases []map[string]any
	for _, c := range copies {
		base, err := Rendered(c.Object)
		if err != nil {
			return nil, err
		}
		p.Clusters = append(p.Clusters, c.Cluster)
		bases = append(bases, base.Object)
	}
	template, err := Template(copies[0].Object)
	if err != nil {
		return nil, err
	}
	p.Template = template
	if divisible[copies[0].Object.GroupVersionKind().GroupKind()] {
		if err := p.divide(copies, bases); err != nil {
			return nil, err
		}
	}
	for i := 1; i < len(copies); i++ {
		if err := p.override(copies[i].Cluster, copies[0].Cluster, bases[0], bases[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// divide keeps the replicas that each cluster has, as weights.
func (p *Plan) divide(copies []Copy, bases []map[string]any) error {
	p.Replicas = map[string]int32{}
	var total int64
	var empty []string
	for i, c := range copies {
		n, found, err := unstructured.NestedInt64(c.Object.Object, "spec", fieldReplicas)
		if err != nil {
			return fmt.Errorf("%w: spec.replicas: %w", ErrRefused, err)
		}
		if !found {
			n = 1
		}
		if n == 0 {
			empty = append(empty, c.Cluster)
		}
		p.Replicas[c.Cluster] = int32(min(n, math.MaxInt32))
		total += n
		unstructured.RemoveNestedField(bases[i], "spec", fieldReplicas)
	}
	if len(empty) > 0 && total > 0 {
		return fmt.Errorf("%w: spec.replicas is 0 in %s and more elsewhere: a share of 0 cannot be kept; leave that cluster out or scale it up first", ErrRefused, strings.Join(empty, ", "))
	}
	if total > math.MaxInt32 {
		return fmt.Errorf("%w: %d replicas are too many", ErrRefused, total)
	}
	return unstructured.SetNestedField(p.Template.Object, total, "spec", fieldReplicas)
}

// override records how a cluster's object differs from the template.
func (p *Plan) override(cluster, first string, base, other map[string]any) error {
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"type"}, {"spec", "selector"}, {"spec", "serviceName"}, {"spec", "names"}, {"spec", "group"}, {"spec", "scope"}} {
		a, _, _ := unstructured.NestedFieldNoCopy(base, path...)
		b, _, _ := unstructured.NestedFieldNoCopy(other, path...)
		if changes := Diff(a, b); len(changes) > 0 {
			for i := range changes {
				changes[i].Path = strings.TrimSuffix(strings.Join(path, ".")+"."+changes[i].Path, ".")
			}
			return fmt.Errorf("%w: %s and %s differ in what must be the same everywhere: %s", ErrRefused, first, cluster, Describe(changes, shownDiff))
		}
	}
	if base["kind"] == "Secret" && base["apiVersion"] == "v1" {
		var fields []string
		for _, c := range Diff(base["data"], other["data"]) {
			fields = append(fields, strings.TrimSuffix("data."+c.Path, "."))
		}
		if len(fields) > 0 {
			return fmt.Errorf("%w: %s and %s differ in %s: an override policy is no place for secret values", ErrRefused, first, cluster, strings.Join(fields, ", "))
		}
	}
	ops, err := Patch(base, other)
	if err != nil {
		return fmt.Errorf("%w: overrides for %s: %w", ErrRefused, cluster, err)
	}
	if len(ops) > maxOverriders {
		return fmt.Errorf("%w: %s and %s differ in %d fields, more than the %d that an override policy holds: %s",
			ErrRefused, first, cluster, len(ops), maxOverriders, Describe(Diff(base, other), shownDiff))
	}
	if len(ops) > 0 {
		p.Overrides[cluster] = ops
	}
	return nil
}

// Template makes the template out of a member's object: what the server has set
// and what belongs to that cluster alone is left out.
func Template(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := Rendered(obj)
	if err != nil {
		return nil, err
	}
	if ttl, found, err := unstructured.NestedFieldCopy(obj.Object, "spec", "ttlSecondsAfterFinished"); err == nil && found {
		// It is the control plane's to carry out.
		if err := unstructured.SetNestedField(out.Object, ttl, "spec", "ttlSecondsAfterFinished"); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	annotations := out.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ConflictAnnotation] = "overwrite"
	if v, ok := obj.GetAnnotations()[lastApplied]; ok {
		annotations[lastApplied] = v
	}
	out.SetAnnotations(annotations)
	return out, nil
}

// Rendered is what a member would be told about a template that is equal to the
// object.
func Rendered(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out := obj.DeepCopy()
	if err := retain.Unallocated(out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	retain.Strip(out)
	return out, nil
}

// Patch is the JSON patch that makes to of from.
func Patch(from, to map[string]any) ([]policyv1alpha1.PlaintextOverrider, error) {
	return patchMaps(nil, "", from, to)
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func patchMaps(ops []policyv1alpha1.PlaintextOverrider, path string, from, to map[string]any) ([]policyv1alpha1.PlaintextOverrider, error) {
	names := map[string]bool{}
	for k := range from {
		names[k] = true
	}
	for k := range to {
		names[k] = true
	}
	var err error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := path + "/" + pointer.Replace(name)
		a, had := from[name]
		b, has := to[name]
		switch {
		case !has:
			ops = append(ops, policyv1alpha1.PlaintextOverrider{Path: at, Operator: policyv1alpha1.OverriderRemove})
		case !had:
			ops, err = operation(ops, at, policyv1alpha1.OverriderAdd, b)
		default:
			ops, err = patchValue(ops, at, a, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return ops, nil
}

func patchValue(ops []policyv1alpha1.PlaintextOverrider, path string, from, to any) ([]policyv1alpha1.PlaintextOverrider, error) {
	if equal(from, to) {
		return ops, nil
	}
	switch f := from.(type) {
	case map[string]any:
		if t, ok := to.(map[string]any); ok {
			return patchMaps(ops, path, f, t)
		}
	case []any:
		if t, ok := to.([]any); ok && len(f) == len(t) {
			var err error
			for i := range f {
				if ops, err = patchValue(ops, fmt.Sprintf("%s/%d", path, i), f[i], t[i]); err != nil {
					return nil, err
				}
			}
			return ops, nil
		}
	}
	return operation(ops, path, policyv1alpha1.OverriderReplace, to)
}

func operation(ops []policyv1alpha1.PlaintextOverrider, path string, op policyv1alpha1.OverriderOperator, value any) ([]policyv1alpha1.PlaintextOverrider, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return append(ops, policyv1alpha1.PlaintextOverrider{Path: path, Operator: op, Value: apiextensionsv1.JSON{Raw: raw}}), nil
}

// For is what a cluster will be told: the template with that cluster's replicas
// and overrides. Marks come with the engine.
func (p *Plan) For(cluster string) (*unstructured.Unstructured, error) {
	out := p.Template.DeepCopy()
	retain.Strip(out)
	if n, ok := p.Replicas[cluster]; ok {
		if err := unstructured.SetNestedField(out.Object, int64(n), "spec", fieldReplicas); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	ops := p.Overrides[cluster]
	if len(ops) == 0 {
		return out, nil
	}
	index, errs := override.NewIndex([]override.Policy{{Namespace: out.GetNamespace(), Spec: policyv1alpha1.OverrideSpec{
		OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{Plaintext: ops}}},
	}}})
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrRefused, errs[0])
	}
	rules := index.For(placement.Template{Namespace: out.GetNamespace(), Name: out.GetName()})
	if err := rules.Apply(out, &placement.Cluster{Name: cluster}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return out, nil
}
