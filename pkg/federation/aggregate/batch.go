package aggregate

// job adds up the counters. Failed if any copy failed, Complete when all are
// complete; both are final, and the API wants no active Pods beside them, so
// while another copy still runs only the announcing condition is set.
func job(in Input) map[string]any {
	if finished(in.Former) {
		return clone(in.Former)
	}
	if len(in.Parts) == 1 && in.Parts[0].Status != nil {
		return singleJob(in)
	}
	out := map[string]any{}
	sumInto(out, in.Parts, false, "active", "ready", "succeeded", "failed", "terminating")
	for _, p := range in.Parts {
		if t := text(p.Status, "startTime"); t != "" && (text(out, "startTime") == "" || t < text(out, "startTime")) {
			out["startTime"] = t
		}
	}
	if t := text(in.Former, "startTime"); t != "" {
		out["startTime"] = t
	}
	conds := jobConditions(in, out)
	if c := staleCondition(in); c != nil {
		conds = append(conds, c)
	}
	if len(conds) > 0 {
		out["conditions"] = settleTimes(in.Former, conds)
	}
	return out
}

func singleJob(in Input) map[string]any {
	out := clone(in.Parts[0].Status)
	delete(out, "uncountedTerminatedPods")
	if t := text(in.Former, "startTime"); t != "" {
		out["startTime"] = t
	}
	return out
}

func finished(status map[string]any) bool {
	return text(condition(status, "Complete"), "status") == "True" || text(condition(status, "Failed"), "status") == "True"
}

func jobConditions(in Input, out map[string]any) []any {
	idle := number(out, "active") == 0 && number(out, "ready") == 0 && number(out, "terminating") == 0 && text(out, "startTime") != ""
	if failed := having(voices(in.Parts, "Failed"), "True"); len(failed) > 0 {
		conds := []any{merge("FailureTarget", "True", failed)}
		if idle && allFinished(in.Parts) {
			conds = append(conds, merge("Failed", "True", failed))
		}
		return conds
	}
	complete := having(voices(in.Parts, "Complete"), "True")
	if len(complete) > 0 && len(complete) == len(in.Parts) && idle {
		for _, p := range in.Parts {
			if t := text(p.Status, "completionTime"); t > text(out, "completionTime") {
				out["completionTime"] = t
			}
		}
		return []any{merge("SuccessCriteriaMet", "True", complete), merge("Complete", "True", complete)}
	}
	if suspended := having(voices(in.Parts, "Suspended"), "True"); len(suspended) > 0 {
		return []any{merge("Suspended", "True", suspended)}
	}
	return nil
}

func allFinished(parts []Part) bool {
	for _, p := range parts {
		if !finished(p.Status) && p.StaleSince == "" {
			return false
		}
	}
	return true
}

func cronJob(in Input) map[string]any {
	out := map[string]any{}
	var active []any
	for _, p := range in.Parts {
		list, _ := p.Status["active"].([]any)
		active = append(active, list...)
		for _, f := range []string{"lastScheduleTime", "lastSuccessfulTime"} {
			if t := text(p.Status, f); t > text(out, f) {
				out[f] = t
			}
		}
	}
	if len(active) > 0 {
		out["active"] = active
	}
	return out
}
