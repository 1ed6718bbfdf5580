package aggregate

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// loadBalancer is the union of the addresses, unchanged and sorted. Which
// cluster an address comes from does not fit in any of its fields.
func loadBalancer(in Input) map[string]any {
	byText := map[string]any{}
	for _, p := range in.Parts {
		if p.StaleSince != "" {
			continue
		}
		lb, _ := p.Status["loadBalancer"].(map[string]any)
		list, _ := lb["ingress"].([]any)
		for _, i := range list {
			raw, err := json.Marshal(i)
			if err != nil {
				continue // made of JSON: cannot fail
			}
			byText[string(raw)] = i
		}
	}
	keys := make([]string, 0, len(byText))
	for k := range byText {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	lb := map[string]any{}
	var ingress []any
	for _, k := range keys {
		ingress = append(ingress, byText[k])
	}
	if len(ingress) > 0 {
		lb["ingress"] = ingress
	}
	return map[string]any{"loadBalancer": lb}
}

// claim: Lost if any is lost, Pending if any is pending, else Bound; capacity
// is the smallest.
func claim(in Input) map[string]any {
	phases := map[string]bool{}
	smallest := map[string]resource.Quantity{}
	out := map[string]any{}
	for _, p := range in.Parts {
		phases[cmp.Or(text(p.Status, "phase"), "Pending")] = true
		if modes, ok := p.Status["accessModes"]; ok && out["accessModes"] == nil {
			out["accessModes"] = modes
		}
		capacity, _ := p.Status["capacity"].(map[string]any)
		for name, v := range capacity {
			s, _ := v.(string)
			q, err := resource.ParseQuantity(s)
			if err != nil {
				continue // a quantity that its own API server would refuse
			}
			if have, ok := smallest[name]; !ok || q.Cmp(have) < 0 {
				smallest[name] = q
			}
		}
	}
	out["phase"] = "Pending"
	switch {
	case phases["Lost"]:
		out["phase"] = "Lost"
	case phases["Bound"] && !phases["Pending"]:
		out["phase"] = "Bound"
	}
	if len(smallest) > 0 {
		capacity := map[string]any{}
		for name, q := range smallest {
			capacity[name] = q.String()
		}
		out["capacity"] = capacity
	}
	return out
}

// autoscaler adds up replicas; its other figures are of one cluster and shown
// only when there is one.
func autoscaler(in Input) map[string]any {
	if len(in.Parts) == 1 && in.Parts[0].Status != nil {
		return clone(in.Parts[0].Status)
	}
	out := map[string]any{}
	sumInto(out, in.Parts, false, "currentReplicas", "desiredReplicas")
	requireZero(out, "desiredReplicas")
	for _, p := range in.Parts {
		if t := text(p.Status, "lastScaleTime"); t > text(out, "lastScaleTime") {
			out["lastScaleTime"] = t
		}
	}
	var conds []any
	for _, typ := range []string{"AbleToScale", "ScalingActive", "ScalingLimited"} {
		vs := voices(in.Parts, typ)
		if len(having(vs, "True"))+len(having(vs, "False"))+len(having(vs, "Unknown")) == 0 {
			continue
		}
		if typ == "ScalingLimited" {
			if limited := having(vs, "True"); len(limited) > 0 {
				conds = append(conds, merge(typ, "True", limited))
				continue
			}
		}
		conds = append(conds, worst(typ, vs, "not reported yet"))
	}
	if len(conds) > 0 {
		out["conditions"] = settleTimes(in.Former, conds)
	}
	return out
}

func budget(in Input) map[string]any {
	out := map[string]any{}
	sumInto(out, in.Parts, false, "expectedPods", "desiredHealthy")
	sumInto(out, in.Parts, true, "currentHealthy", "disruptionsAllowed")
	requireZero(out, "expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
	disrupted := map[string]any{}
	for _, p := range in.Parts {
		pods, _ := p.Status["disruptedPods"].(map[string]any)
		for name, t := range pods {
			disrupted[p.Cluster+"/"+name] = t
		}
	}
	if len(disrupted) > 0 {
		out["disruptedPods"] = disrupted
	}
	return out
}
