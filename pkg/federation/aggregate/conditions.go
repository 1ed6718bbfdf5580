package aggregate

import (
	"slices"
	"strings"
)

// condition finds a condition in a status.
func condition(status map[string]any, typ string) map[string]any {
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == typ {
			return m
		}
	}
	return nil
}

// controllerConditions are the types of conditions that controllers of the
// members and this package write, per kind.
var controllerConditions = map[string][]string{
	"Deployment":              {"Available", "Progressing", "ReplicaFailure"},
	"ReplicaSet":              {"ReplicaFailure"},
	"ReplicationController":   {"ReplicaFailure"},
	"Job":                     {"Suspended", "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"},
	"HorizontalPodAutoscaler": {"AbleToScale", "ScalingActive", "ScalingLimited"},
	"PodDisruptionBudget":     {"DisruptionAllowed"},
}

// keepOthers keeps conditions that somebody else has written into the status:
// a controller of one cluster leaves them alone too.
func keepOthers(in Input, out map[string]any) {
	former, _ := in.Former["conditions"].([]any)
	conds, _ := out["conditions"].([]any)
	for _, c := range former {
		m, ok := c.(map[string]any)
		if !ok {
			continue
		}
		typ := text(m, "type")
		if typ == "Stale" || slices.Contains(controllerConditions[in.Kind.Kind], typ) || condition(out, typ) != nil {
			continue
		}
		conds = append(slices.Clone(conds), c)
	}
	if len(conds) > 0 {
		out["conditions"] = conds
	}
}

// voice is a part's condition of one type; nil when it has not said anything.
type voice struct {
	cluster string
	cond    map[string]any
}

func voices(parts []Part, typ string) []voice {
	out := make([]voice, 0, len(parts))
	for _, p := range parts {
		out = append(out, voice{cluster: p.Cluster, cond: condition(p.Status, typ)})
	}
	return out
}

// having keeps the voices with a status.
func having(vs []voice, status string) []voice {
	return slices.DeleteFunc(slices.Clone(vs), func(v voice) bool { return text(v.cond, "status") != status })
}

// merge makes one condition of the voices that decide it: reason of the first,
// messages of all with the name of the cluster, the latest times.
func merge(typ, status string, vs []voice) map[string]any {
	out := map[string]any{"type": typ, "status": status}
	var messages []string
	for _, v := range vs {
		if r := text(v.cond, "reason"); r != "" && out["reason"] == nil {
			out["reason"] = r
		}
		if m := text(v.cond, "message"); m != "" {
			messages = append(messages, v.cluster+": "+m)
		}
		for _, f := range []string{"lastTransitionTime", "lastUpdateTime", "lastProbeTime"} {
			// RFC 3339 in UTC compares as text.
			if t := text(v.cond, f); t > text(out, f) {
				out[f] = t
			}
		}
	}
	if len(messages) > 0 {
		out["message"] = strings.Join(messages, "; ")
	}
	return out
}

// worst makes one condition of all: False if any is False, Unknown if any is
// Unknown or silent, else True.
func worst(typ string, vs []voice, silent string) map[string]any {
	for _, status := range []string{"False", "Unknown"} {
		if some := having(vs, status); len(some) > 0 {
			return merge(typ, status, some)
		}
	}
	var quiet []voice
	for _, v := range vs {
		if v.cond == nil {
			quiet = append(quiet, voice{cluster: v.cluster, cond: map[string]any{"message": silent, "reason": "NotReported"}})
		}
	}
	if len(quiet) > 0 {
		return merge(typ, "Unknown", quiet)
	}
	return merge(typ, "True", vs)
}

// settleTimes keeps the transition time of the former condition where the
// status has not changed, and gives a time to conditions that have none: the
// former one's, or else the latest that is known.
func settleTimes(former map[string]any, conds []any) []any {
	var latest string
	for _, c := range conds {
		m := c.(map[string]any)
		latest = max(latest, text(m, "lastTransitionTime"), text(m, "lastUpdateTime"))
	}
	for _, c := range conds {
		m := c.(map[string]any)
		old := condition(former, text(m, "type"))
		if old != nil && old["status"] == m["status"] {
			if t := text(old, "lastTransitionTime"); t != "" {
				m["lastTransitionTime"] = t
			}
		}
		if text(m, "lastTransitionTime") == "" && latest != "" {
			m["lastTransitionTime"] = latest
		}
	}
	return conds
}
