package aggregate

import "slices"

// deployment adds up the counters and merges Available, Progressing and
// ReplicaFailure.
func deployment(in Input) map[string]any {
	out := map[string]any{}
	sumInto(out, in.Parts, false, "replicas", "updatedReplicas", "terminatingReplicas")
	sumInto(out, in.Parts, true, "readyReplicas", "availableReplicas")
	if missing := max(int64(in.Replicas), number(out, "replicas")) - number(out, "availableReplicas"); missing > 0 {
		out["unavailableReplicas"] = missing
	}
	if c, ok := in.Former["collisionCount"]; ok {
		out["collisionCount"] = c
	}
	var conds []any
	conds = append(conds, deploymentAvailable(in))
	if c := deploymentProgressing(in); c != nil {
		conds = append(conds, c)
	}
	if failing := having(voices(in.Parts, "ReplicaFailure"), "True"); len(failing) > 0 {
		conds = append(conds, merge("ReplicaFailure", "True", failing))
	}
	if c := staleCondition(in); c != nil {
		conds = append(conds, c)
	}
	out["conditions"] = withUpdateTimes(in.Former, settleTimes(in.Former, conds))
	return out
}

// withUpdateTimes: a Deployment's conditions carry lastUpdateTime too.
func withUpdateTimes(former map[string]any, conds []any) []any {
	for _, c := range conds {
		m := c.(map[string]any)
		if text(m, "lastUpdateTime") != "" {
			continue
		}
		if t := text(condition(former, text(m, "type")), "lastUpdateTime"); t != "" {
			m["lastUpdateTime"] = t
		} else if t := text(m, "lastTransitionTime"); t != "" {
			m["lastUpdateTime"] = t
		}
	}
	return conds
}

func deploymentAvailable(in Input) map[string]any {
	var asked []Part
	for _, p := range in.Parts {
		switch {
		case p.Desired == 0:
		case p.StaleSince != "":
			p.Status = map[string]any{"conditions": []any{map[string]any{
				"type": "Available", "status": "False", "reason": "ClusterUnreachable", "message": "unreachable since " + p.StaleSince,
			}}}
			asked = append(asked, p)
		default:
			asked = append(asked, p)
		}
	}
	if len(asked) > 0 {
		c := worst("Available", voices(asked, "Available"), "not reported yet")
		if c["status"] == "Unknown" {
			c["status"] = "False"
		}
		return c
	}
	if in.Problem != "" && in.Replicas > 0 {
		return map[string]any{"type": "Available", "status": "False", "reason": "NoClusterFit", "message": in.Problem}
	}
	if in.Replicas > 0 {
		return map[string]any{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "no cluster holds replicas yet"}
	}
	return map[string]any{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "no replicas are asked for"}
}

// deploymentProgressing: False if any rollout is stuck; while one cluster is
// still working its reason is shown; the end is NewReplicaSetAvailable, only
// when all say so.
func deploymentProgressing(in Input) map[string]any {
	var asked []Part
	for _, p := range in.Parts {
		if p.StaleSince == "" {
			asked = append(asked, p)
		}
	}
	vs := voices(asked, "Progressing")
	for _, status := range []string{"False", "Unknown"} {
		if some := having(vs, status); len(some) > 0 {
			return merge("Progressing", status, some)
		}
	}
	going := having(vs, "True")
	if len(going) == 0 {
		return nil
	}
	var working []voice
	for _, v := range going {
		if text(v.cond, "reason") != "NewReplicaSetAvailable" {
			working = append(working, v)
		}
	}
	if len(working) > 0 {
		return merge("Progressing", "True", working)
	}
	c := merge("Progressing", "True", going)
	if len(going) < len(asked) || !Observed(in) || slices.ContainsFunc(in.Parts, Part.outdated) {
		c["reason"] = "ReplicaSetUpdated"
	}
	return c
}

// replicaSet serves ReplicationControllers too.
func replicaSet(in Input) map[string]any {
	out := map[string]any{}
	sumInto(out, in.Parts, false, "replicas", "fullyLabeledReplicas", "terminatingReplicas")
	sumInto(out, in.Parts, true, "readyReplicas", "availableReplicas")
	requireZero(out, "replicas")
	var conds []any
	if failing := having(voices(in.Parts, "ReplicaFailure"), "True"); len(failing) > 0 {
		conds = append(conds, merge("ReplicaFailure", "True", failing))
	}
	if c := staleCondition(in); c != nil {
		conds = append(conds, c)
	}
	if len(conds) > 0 {
		out["conditions"] = settleTimes(in.Former, conds)
	}
	return out
}

// statefulSet adds up; the revisions shown are those of a cluster that is not
// done, so that a rollout ends when all have ended.
func statefulSet(in Input) map[string]any {
	out := map[string]any{}
	sumInto(out, in.Parts, false, "replicas", "currentReplicas", "updatedReplicas")
	sumInto(out, in.Parts, true, "readyReplicas", "availableReplicas")
	requireZero(out, "replicas")
	for _, p := range in.Parts {
		current, update := text(p.Status, "currentRevision"), text(p.Status, "updateRevision")
		if update == "" {
			continue
		}
		if _, set := out["updateRevision"]; !set || current != update {
			out["currentRevision"], out["updateRevision"] = current, update
		}
		if current != update {
			break
		}
	}
	if c, ok := in.Former["collisionCount"]; ok {
		out["collisionCount"] = c
	}
	if c := staleCondition(in); c != nil {
		out["conditions"] = settleTimes(in.Former, []any{c})
	}
	return out
}

func daemonSet(in Input) map[string]any {
	out := map[string]any{}
	sumInto(out, in.Parts, false, "currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "updatedNumberScheduled", "numberUnavailable")
	sumInto(out, in.Parts, true, "numberReady", "numberAvailable")
	requireZero(out, "currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
	if c, ok := in.Former["collisionCount"]; ok {
		out["collisionCount"] = c
	}
	if c := staleCondition(in); c != nil {
		out["conditions"] = settleTimes(in.Former, []any{c})
	}
	return out
}
