package retain

import (
	"maps"
	"reflect"
)

// Yield turns what a customization wants kept of a member's object into what is
// applied: a value that was taken over from the member is not spoken of, so that
// it stays the member's, unless the copy's content is claimed there already; then
// it is said as it is, because dropping the claim would reset the field.
//
// desired is what would be applied, retained what the customization made of it,
// observed the member's object, ours the FieldsV1 of our claims.
func Yield(desired, retained, observed, ours map[string]any) map[string]any {
	out := make(map[string]any, len(retained))
	for k, v := range retained {
		was, wanted := desired[k]
		if wanted && reflect.DeepEqual(v, was) {
			out[k] = v
			continue
		}
		claims, claimed := ours["f:"+k].(map[string]any)
		there, exists := observed[k]
		kept, isMap := v.(map[string]any)
		wasMap, wasIsMap := was.(map[string]any)
		thereMap, thereIsMap := there.(map[string]any)
		switch {
		case isMap && thereIsMap && (wasIsMap || !wanted):
			below := Yield(wasMap, kept, thereMap, claims)
			if len(below) > 0 || wanted {
				out[k] = below
			}
		case exists && reflect.DeepEqual(v, there) && !claimed:
			// The member's.
		default:
			out[k] = v
		}
	}
	return out
}

// Restore puts back, into what a customization has made, the labels and
// annotations that mark the copy as ours.
func Restore(object map[string]any, labels, annotations map[string]string) {
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	for field, marks := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		set := map[string]any{}
		if present, ok := meta[field].(map[string]any); ok {
			maps.Copy(set, present)
		}
		for k, v := range marks {
			set[k] = v
		}
		meta[field] = set
	}
}
