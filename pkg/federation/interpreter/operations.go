package interpreter

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
)

// Requirement is what one replica asks for.
type Requirement struct {
	Request corev1.ResourceList
}

// Replicas reads how many replicas an object has and what one asks for; nil when
// that is not said.
func (i *Interpreter) Replicas(ctx context.Context, gvk schema.GroupVersionKind, object map[string]any) (int32, *Requirement, error) {
	out, err := i.call(ctx, gvk, GetReplicas, 2, object)
	if err != nil {
		return 0, nil, err
	}
	n, ok := count(out[0])
	if !ok {
		return 0, nil, i.wrong(gvk, GetReplicas, "the first result is %s, not a number of replicas", describe(out[0]))
	}
	req, err := requirement(out[1])
	if err != nil {
		return 0, nil, i.wrong(gvk, GetReplicas, "the second result: %w", err)
	}
	return n, req, nil
}

// Component is one kind of replicas of an object that has several.
type Component struct {
	Name     string
	Replicas int32
	Requirement
}

// Components reads the parts of an object.
func (i *Interpreter) Components(ctx context.Context, gvk schema.GroupVersionKind, object map[string]any) ([]Component, error) {
	out, err := i.call(ctx, gvk, GetComponents, 1, object)
	if err != nil {
		return nil, err
	}
	list, ok := asList(out[0])
	if !ok {
		return nil, i.wrong(gvk, GetComponents, "the result is %s, not a list", describe(out[0]))
	}
	components := make([]Component, 0, len(list))
	for at, item := range list {
		m, _ := item.(map[string]any)
		n, okN := count(m["replicas"])
		name, okName := m["name"].(string)
		if !okN || !okName {
			return nil, i.wrong(gvk, GetComponents, "item %d has no name or no number of replicas", at+1)
		}
		req, err := requirement(m["replicaRequirements"])
		if err != nil {
			return nil, i.wrong(gvk, GetComponents, "item %d: %w", at+1, err)
		}
		c := Component{Name: name, Replicas: n}
		if req != nil {
			c.Requirement = *req
		}
		components = append(components, c)
	}
	return components, nil
}

// Revise sets how many replicas an object has.
func (i *Interpreter) Revise(ctx context.Context, gvk schema.GroupVersionKind, object map[string]any, replicas int32) (map[string]any, error) {
	out, err := i.call(ctx, gvk, ReviseReplica, 1, object, int64(replicas))
	if err != nil {
		return nil, err
	}
	return i.same(gvk, ReviseReplica, object, out[0])
}

// RetainIn says what is to be written, of what would be and what is there.
func (i *Interpreter) RetainIn(ctx context.Context, gvk schema.GroupVersionKind, desired, observed map[string]any) (map[string]any, error) {
	out, err := i.call(ctx, gvk, Retain, 1, desired, observed)
	if err != nil {
		return nil, err
	}
	return i.same(gvk, Retain, desired, out[0])
}

// same checks that a result is still the object that it was made of.
func (i *Interpreter) same(gvk schema.GroupVersionKind, op Operation, given map[string]any, result any) (map[string]any, error) {
	object, ok := result.(map[string]any)
	if !ok {
		return nil, i.wrong(gvk, op, "the result is %s, not an object", describe(result))
	}
	meta, _ := object["metadata"].(map[string]any)
	was, _ := given["metadata"].(map[string]any)
	if object["kind"] != given["kind"] || object["apiVersion"] != given["apiVersion"] || meta["name"] != was["name"] || meta["namespace"] != was["namespace"] {
		return nil, i.wrong(gvk, op, "the result is another object than the one it was given")
	}
	return object, nil
}

// Reflect picks what is kept of a copy's status; nil for nothing.
func (i *Interpreter) Reflect(ctx context.Context, gvk schema.GroupVersionKind, observed map[string]any) (map[string]any, error) {
	out, err := i.call(ctx, gvk, ReflectStatus, 1, observed)
	if err != nil {
		return nil, err
	}
	if out[0] == nil {
		return nil, nil
	}
	status, ok := out[0].(map[string]any)
	if !ok {
		return nil, i.wrong(gvk, ReflectStatus, "the result is %s, not a status", describe(out[0]))
	}
	return status, nil
}

// StatusItem is the state of one copy.
type StatusItem struct {
	Cluster string
	Status  map[string]any // what Reflect says; nil when there is none
	Applied bool
	Message string
	Health  string
}

// Aggregate makes one status of those of the copies. desired is the template with
// its present status.
func (i *Interpreter) Aggregate(ctx context.Context, gvk schema.GroupVersionKind, desired map[string]any, items []StatusItem) (map[string]any, error) {
	list := make([]any, 0, len(items))
	for _, item := range items {
		m := map[string]any{"clusterName": item.Cluster, "applied": item.Applied, "health": item.Health}
		if item.Status != nil {
			m["status"] = item.Status
		}
		if item.Message != "" {
			m["appliedMessage"] = item.Message
		}
		list = append(list, m)
	}
	out, err := i.call(ctx, gvk, AggregateStatus, 1, desired, list)
	if err != nil {
		return nil, err
	}
	object, err := i.same(gvk, AggregateStatus, desired, out[0])
	if err != nil {
		return nil, err
	}
	switch status := object["status"].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return status, nil
	default:
		return nil, i.wrong(gvk, AggregateStatus, "the status is %s", describe(status))
	}
}

// Dependencies lists what an object needs beside it.
func (i *Interpreter) Dependencies(ctx context.Context, gvk schema.GroupVersionKind, object map[string]any) ([]dependencies.Ref, error) {
	out, err := i.call(ctx, gvk, GetDependencies, 1, object)
	if err != nil {
		return nil, err
	}
	list, ok := asList(out[0])
	if !ok {
		return nil, i.wrong(gvk, GetDependencies, "the result is %s, not a list", describe(out[0]))
	}
	refs := make([]dependencies.Ref, 0, len(list))
	for at, item := range list {
		ref, err := reference(item)
		if err != nil {
			return nil, i.wrong(gvk, GetDependencies, "item %d: %w", at+1, err)
		}
		refs = append(refs, ref)
	}
	return dependencies.Sorted(refs), nil
}

func reference(item any) (dependencies.Ref, error) {
	m, ok := item.(map[string]any)
	if !ok {
		return dependencies.Ref{}, fmt.Errorf("it is %s, not a reference", describe(item)) //nolint:err113 // says what was returned
	}
	text := func(field string) string {
		s, _ := m[field].(string)
		return s
	}
	ref := dependencies.Ref{APIVersion: text("apiVersion"), Kind: text("kind"), Namespace: text("namespace"), Name: text("name")}
	if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || ref.APIVersion == "" || ref.Kind == "" {
		return ref, fmt.Errorf("apiVersion %q and kind %q name no kind", ref.APIVersion, ref.Kind) //nolint:err113 // as above
	}
	if raw, ok := m["labelSelector"].(map[string]any); ok && ref.Name == "" {
		selector := &metav1.LabelSelector{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, selector); err != nil {
			return ref, fmt.Errorf("labelSelector: %w", err)
		}
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return ref, fmt.Errorf("labelSelector: %w", err)
		}
		if !parsed.Empty() {
			ref.Selector = parsed.String()
		}
	}
	if ref.Name == "" && ref.Selector == "" {
		return ref, fmt.Errorf("a %s without name and labelSelector", ref.Kind) //nolint:err113 // as above
	}
	return ref, nil
}

// count is a number of replicas.
func count(v any) (int32, bool) {
	n, ok := v.(int64)
	if f, isFloat := v.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32 {
		n, ok = int64(f), true
	}
	if !ok || n < 0 || n > math.MaxInt32 {
		return 0, false
	}
	return int32(n), true
}

// asList: an empty table has no type of its own, and nothing is an empty list.
func asList(v any) ([]any, bool) {
	switch x := v.(type) {
	case nil:
		return nil, true
	case []any:
		return x, true
	case map[string]any:
		return nil, len(x) == 0
	}
	return nil, false
}

func requirement(v any) (*Requirement, error) {
	m, ok := v.(map[string]any)
	if !ok {
		if v == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("%s is no requirement", describe(v)) //nolint:err113 // says what was returned
	}
	request, _ := m["resourceRequest"].(map[string]any)
	if len(request) == 0 {
		return nil, nil
	}
	out := &Requirement{Request: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}
	for name, value := range request {
		q, err := quantity(value)
		if err != nil {
			return nil, fmt.Errorf("resourceRequest.%s: %w", name, err)
		}
		out.Request[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func describe(v any) string {
	switch x := v.(type) {
	case nil:
		return "nil"
	case string:
		return fmt.Sprintf("%.40q", x)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprint(x)
	}
}
