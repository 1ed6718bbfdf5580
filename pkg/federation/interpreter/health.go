package interpreter

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Health of a copy.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
	Unknown   = "Unknown"
)

// Health says whether a copy is healthy. observed may be nil where Looks is
// false; status is what the copy reports.
func (i *Interpreter) Health(ctx context.Context, gvk schema.GroupVersionKind, observed, status map[string]any, c Counts) (string, error) {
	builtin, known := healthOf[gvk.GroupKind()]
	if i.Customized(gvk, InterpretHealth) || !known && i.Scripted(gvk, InterpretHealth) {
		out, err := i.call(ctx, gvk, InterpretHealth, 1, observed)
		if err != nil {
			return Unknown, err
		}
		healthy, ok := out[0].(bool)
		if !ok {
			return Unknown, i.wrong(gvk, InterpretHealth, "the result is %s, not true or false", describe(out[0]))
		}
		return health(healthy), nil
	}
	if !known {
		return Unknown, nil
	}
	return health(builtin(status, c)), nil
}

func health(ok bool) string {
	if ok {
		return Healthy
	}
	return Unhealthy
}

// Counts are what is known of a copy beside its status.
type Counts struct {
	Generation int64
	Replicas   int32
}

var healthOf = map[schema.GroupKind]func(map[string]any, Counts) bool{
	{Group: "apps", Kind: "Deployment"}:            rolledOut,
	{Group: "apps", Kind: "StatefulSet"}:           rolledOut,
	{Group: "apps", Kind: "ReplicaSet"}:            available,
	{Kind: "ReplicationController"}:                available,
	{Group: "apps", Kind: "DaemonSet"}:             everywhere,
	{Group: "batch", Kind: "Job"}:                  notFailed,
	{Kind: "PersistentVolumeClaim"}:                func(s map[string]any, _ Counts) bool { return s["phase"] == "Bound" },
	{Group: "policy", Kind: "PodDisruptionBudget"}: undisturbed,
}

func observed(s map[string]any, c Counts) bool {
	return integer(s, "observedGeneration") >= c.Generation
}

func rolledOut(s map[string]any, c Counts) bool {
	return available(s, c) && integer(s, "updatedReplicas") >= int64(c.Replicas)
}

func available(s map[string]any, c Counts) bool {
	return observed(s, c) && integer(s, "availableReplicas") >= int64(c.Replicas)
}

func everywhere(s map[string]any, c Counts) bool {
	wanted := integer(s, "desiredNumberScheduled")
	return observed(s, c) && integer(s, "updatedNumberScheduled") >= wanted && integer(s, "numberAvailable") >= wanted
}

func notFailed(s map[string]any, _ Counts) bool {
	conditions, _ := s["conditions"].([]any)
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Failed" && m["status"] == "True" {
			return false
		}
	}
	return true
}

func undisturbed(s map[string]any, c Counts) bool {
	return observed(s, c) && integer(s, "currentHealthy") >= integer(s, "desiredHealthy")
}

func integer(m map[string]any, field string) int64 {
	switch n := m[field].(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
