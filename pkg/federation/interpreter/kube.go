package interpreter

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter/sandbox"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// kubeModule is what scripts get by require("kube").
var kubeModule = map[string]sandbox.Function{
	"resourceAdd":             resourceAdd,
	"accuratePodRequirements": accuratePodRequirements,
	"getPodDependencies":      getPodDependencies,
	"getResourceQuantity":     getResourceQuantity,
}

var (
	errNoPodTemplate = errors.New("the argument is no Pod template")
	errNoQuantity    = errors.New("the argument is no quantity")
)

// quantity reads a string such as "500m", or a number. Nothing is zero.
func quantity(v any) (resource.Quantity, error) {
	switch x := v.(type) {
	case nil:
		return resource.Quantity{}, nil
	case int64:
		return *resource.NewQuantity(x, resource.DecimalSI), nil
	case float64:
		return resource.ParseQuantity(strconv.FormatFloat(x, 'f', -1, 64))
	case string:
		q, err := resource.ParseQuantity(x)
		if err != nil {
			return q, fmt.Errorf("quantity %q: %w", x, err)
		}
		return q, nil
	}
	return resource.Quantity{}, errNoQuantity
}

// resourceAdd sums quantities up.
func resourceAdd(args []any) ([]any, error) {
	var sum resource.Quantity
	for _, a := range args {
		q, err := quantity(a)
		if err != nil {
			return nil, err
		}
		sum.Add(q)
	}
	return []any{sum.String()}, nil
}

// getResourceQuantity is a quantity as a number.
func getResourceQuantity(args []any) ([]any, error) {
	if len(args) == 0 {
		return nil, errNoQuantity
	}
	q, err := quantity(args[0])
	if err != nil {
		return nil, err
	}
	f := q.AsApproximateFloat64()
	if math.IsInf(f, 0) {
		return nil, errNoQuantity
	}
	return []any{f}, nil
}

// podSpec reads the spec of a Pod template, or of a Pod.
func podSpec(args []any) (*corev1.PodSpec, error) {
	if len(args) == 0 {
		return nil, errNoPodTemplate
	}
	m, ok := args[0].(map[string]any)
	if !ok {
		return nil, errNoPodTemplate
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": m["spec"]}, template); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoPodTemplate, err)
	}
	return &template.Spec, nil
}

// accuratePodRequirements is what a Pod asks for and where it can run.
func accuratePodRequirements(args []any) ([]any, error) {
	spec, err := podSpec(args)
	if err != nil {
		return nil, err
	}
	request := map[string]any{}
	for name, q := range placement.Request(spec) {
		if name != corev1.ResourcePods {
			request[string(name)] = q.String()
		}
	}
	out, claim := map[string]any{}, map[string]any{}
	if len(request) > 0 {
		out["resourceRequest"] = request
	}
	pod, _ := args[0].(map[string]any)
	raw, _ := pod["spec"].(map[string]any)
	for _, field := range []string{"nodeSelector", "tolerations"} {
		if v, ok := raw[field]; ok {
			claim[field] = v
		}
	}
	affinity, _ := raw["affinity"].(map[string]any)
	node, _ := affinity["nodeAffinity"].(map[string]any)
	if v, ok := node["requiredDuringSchedulingIgnoredDuringExecution"]; ok {
		claim["hardNodeAffinity"] = v
	}
	if len(claim) > 0 {
		out["nodeClaim"] = claim
	}
	if spec.PriorityClassName != "" {
		out["priorityClassName"] = spec.PriorityClassName
	}
	return []any{out}, nil
}

// getPodDependencies lists what the Pods of a template need in a namespace.
func getPodDependencies(args []any) ([]any, error) {
	spec, err := podSpec(args)
	if err != nil {
		return nil, err
	}
	namespace := ""
	if len(args) > 1 {
		namespace, _ = args[1].(string)
	}
	list := []any{}
	for _, r := range dependencies.OfPod(spec) {
		list = append(list, map[string]any{"apiVersion": "v1", "kind": r.Kind, "namespace": namespace, "name": r.Name})
	}
	return []any{list}, nil
}
