package aggregate

import "k8s.io/apimachinery/pkg/runtime/schema"

// Known says whether the kind's status is made by what is built in.
func Known(gk schema.GroupKind) bool {
	_, ok := kinds[gk]
	return ok
}

// Honest takes back an observedGeneration that is ahead of the truth: a status
// that others have made may claim the present generation before every copy that
// can be reached has it.
func Honest(in Input, out map[string]any) {
	if _, ok := out["observedGeneration"]; !ok || number(out, "observedGeneration") < in.Generation || Observed(in) {
		return
	}
	if was, ok := in.Former["observedGeneration"]; ok && number(in.Former, "observedGeneration") < in.Generation {
		out["observedGeneration"] = was
		return
	}
	delete(out, "observedGeneration")
}
