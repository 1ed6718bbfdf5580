// Package aggregate makes one status of the statuses of a template's copies,
// so that clients that know nothing of clusters read the truth: counters are
// sums, conditions name the clusters, observedGeneration advances only when
// every copy has observed what the engine decided.
//
//	template, its former status, one Part per target -> Status -> status or nil
package aggregate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Part is one target's copy.
type Part struct {
	Cluster string
	// Exists is set when there is a copy.
	Exists bool
	// Applied is set when the copy was written, or found, to be what the
	// template's present generation asks for.
	Applied bool
	// Withheld is set when the copy waits for its turn with the present
	// template: it holds nothing up, and nothing in it is updated.
	Withheld bool
	// Unreported is set when the present template was written to the copy and
	// its status is still about the one before.
	Unreported bool
	// Generation is the copy's metadata.generation.
	Generation int64
	// Desired are the replicas decided for the cluster.
	Desired int32
	// Status of the copy, nil when it has none yet. Not to be changed.
	Status map[string]any
	// StaleSince is not empty when the cluster has not been reachable for
	// longer than the grace period: what it reported is not counted as
	// available, and it holds nothing up.
	StaleSince string
	// Health of the copy: Healthy, Unhealthy or Unknown.
	Health string
}

// outdated: what the status calls updated is not.
func (p Part) outdated() bool { return p.Withheld || p.Unreported }

// Input is all that a status depends on.
type Input struct {
	Kind       schema.GroupKind
	Generation int64
	// Replicas is the template's spec.replicas, for kinds that have it.
	Replicas int32
	// Former is the template's present status. Not to be changed.
	Former map[string]any
	// Decided is set when targets and replicas were decided for the present
	// generation.
	Decided bool
	// Problem says why there is no target, in words for a condition.
	Problem string
	Parts   []Part // sorted by cluster
}

// Status returns the status of the template; nil means that the engine has
// nothing to say about this kind.
func Status(in Input) map[string]any {
	f, known := kinds[in.Kind]
	if !known {
		if in.Kind.Group == "" || !strings.Contains(in.Kind.Group, ".") || strings.HasSuffix(in.Kind.Group, ".k8s.io") {
			return nil
		}
		f = passOn
	}
	out := f(in)
	if out == nil {
		return nil
	}
	if known {
		keepOthers(in, out)
	}
	if observes[in.Kind] || !known {
		observe(in, out)
	}
	return out
}

var kinds = map[schema.GroupKind]func(Input) map[string]any{
	{Group: "apps", Kind: "Deployment"}:                     deployment,
	{Group: "apps", Kind: "ReplicaSet"}:                     replicaSet,
	{Kind: "ReplicationController"}:                         replicaSet,
	{Group: "apps", Kind: "StatefulSet"}:                    statefulSet,
	{Group: "apps", Kind: "DaemonSet"}:                      daemonSet,
	{Group: "batch", Kind: "Job"}:                           job,
	{Group: "batch", Kind: "CronJob"}:                       cronJob,
	{Kind: "Service"}:                                       loadBalancer,
	{Group: "networking.k8s.io", Kind: "Ingress"}:           loadBalancer,
	{Kind: "PersistentVolumeClaim"}:                         claim,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: autoscaler,
	{Group: "policy", Kind: "PodDisruptionBudget"}:          budget,
}

// observes lists the kinds whose status has an observedGeneration.
var observes = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}:                     true,
	{Group: "apps", Kind: "ReplicaSet"}:                     true,
	{Kind: "ReplicationController"}:                         true,
	{Group: "apps", Kind: "StatefulSet"}:                    true,
	{Group: "apps", Kind: "DaemonSet"}:                      true,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: true,
	{Group: "policy", Kind: "PodDisruptionBudget"}:          true,
}

// observe sets observedGeneration. A generation is observed when it has been
// decided on and every copy that can be reached has been written and observed
// by the controllers of its member.
func observe(in Input, out map[string]any) {
	was := number(in.Former, "observedGeneration")
	if Observed(in) {
		was = in.Generation
	}
	if was > 0 {
		out["observedGeneration"] = was
	} else {
		delete(out, "observedGeneration")
	}
}

// Observed says whether the template's present generation is in force
// everywhere.
func Observed(in Input) bool {
	return in.Decided && !slices.ContainsFunc(in.Parts, func(p Part) bool {
		if p.StaleSince != "" || p.Withheld {
			return false
		}
		if !p.Exists || !p.Applied {
			return true
		}
		// A kind without observedGeneration in the member cannot be asked.
		_, reports := p.Status["observedGeneration"]
		return (reports || observes[in.Kind]) && number(p.Status, "observedGeneration") < p.Generation
	})
}

// passOn is for kinds nobody has explained: the status of the only copy.
func passOn(in Input) map[string]any {
	if len(in.Parts) != 1 || in.Parts[0].Status == nil {
		return nil
	}
	return clone(in.Parts[0].Status)
}

func clone(in map[string]any) map[string]any {
	out := make(map[string]any, len(in))
	maps.Copy(out, in)
	return out
}

func number(m map[string]any, field string) int64 {
	switch n := m[field].(type) {
	case int64:
		return n
	case int32:
		return int64(n)
	case int:
		return int64(n)
	case float64:
		return int64(n)
	case string: // as some kinds write their observedGeneration
		i, err := strconv.ParseInt(n, 10, 64)
		if err == nil {
			return i
		}
	}
	return 0
}

func text(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}

// sumInto adds up counters; those of stale clusters only where they say what
// exists, not where they say what serves.
func sumInto(out map[string]any, parts []Part, serving bool, fields ...string) {
	for _, f := range fields {
		var n int64
		for _, p := range parts {
			if serving && p.StaleSince != "" || f == "updatedReplicas" && p.outdated() {
				continue
			}
			n += number(p.Status, f)
		}
		if n != 0 {
			out[f] = n
		}
	}
}

// requireZero makes counters that the API wants even when they are zero.
func requireZero(out map[string]any, fields ...string) {
	for _, f := range fields {
		if _, ok := out[f]; !ok {
			out[f] = int64(0)
		}
	}
}

// staleCondition names the clusters that have not been heard of.
func staleCondition(in Input) map[string]any {
	var who []string
	for _, p := range in.Parts {
		if p.StaleSince != "" {
			who = append(who, fmt.Sprintf("%s: unreachable since %s", p.Cluster, p.StaleSince))
		}
	}
	if len(who) == 0 {
		return nil
	}
	return map[string]any{
		"type": "Stale", "status": "True", "reason": "ClusterUnreachable", "message": strings.Join(who, "; "),
	}
}
