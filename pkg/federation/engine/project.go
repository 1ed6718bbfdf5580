package engine

import (
	"encoding/json"
	"strings"
)

// project cuts out of an object the values at the fields of a FieldsV1 set, so
// that they can be compared with what was applied. Fields: "f:NAME" for
// members, "k:{KEYS}" for list items by key, "v:VALUE" for set items, "i:N" for
// items by position, "." for the item itself. A leaf takes the whole value.
func project(object, fields map[string]any) map[string]any {
	out, _ := projectValue(object, fields).(map[string]any)
	return out
}

func projectValue(v any, fields map[string]any) any {
	if isLeaf(fields) {
		return v
	}
	switch t := v.(type) {
	case map[string]any:
		return projectMap(t, fields)
	case []any:
		return projectList(t, fields)
	}
	return v
}

// isLeaf: nothing below but the item itself.
func isLeaf(fields map[string]any) bool {
	for k := range fields {
		if k != "." {
			return false
		}
	}
	return true
}

func projectMap(m map[string]any, fields map[string]any) any {
	out := map[string]any{}
	for k, sub := range fields {
		name, ok := strings.CutPrefix(k, "f:")
		if !ok {
			continue
		}
		v, present := m[name]
		if !present {
			continue
		}
		below, _ := sub.(map[string]any)
		out[name] = projectValue(v, below)
	}
	return out
}

func projectList(list []any, fields map[string]any) any {
	selectors := make([]itemSelector, 0, len(fields))
	for k, sub := range fields {
		below, _ := sub.(map[string]any)
		if s, ok := parseItem(k, below); ok {
			selectors = append(selectors, s)
		}
	}
	out := make([]any, 0, len(list))
	for i, item := range list {
		for _, s := range selectors {
			if s.matches(i, item) {
				if s.keys != nil && isLeaf(s.below) {
					// Only the keys are ours.
					out = append(out, s.keys)
				} else {
					out = append(out, projectValue(item, s.below))
				}
				break
			}
		}
	}
	return out
}

type itemSelector struct {
	keys  map[string]any // nil unless selected by key
	value any
	index int // -1 unless selected by position
	below map[string]any
}

func parseItem(field string, below map[string]any) (itemSelector, bool) {
	s := itemSelector{index: -1, below: below}
	kind, rest, ok := strings.Cut(field, ":")
	if !ok {
		return s, false
	}
	switch kind {
	case "k":
		if json.Unmarshal([]byte(rest), &s.keys) != nil || s.keys == nil {
			return s, false
		}
	case "v":
		if json.Unmarshal([]byte(rest), &s.value) != nil {
			return s, false
		}
	case "i":
		if json.Unmarshal([]byte(rest), &s.index) != nil {
			return s, false
		}
	default:
		return s, false
	}
	return s, true
}

func (s itemSelector) matches(i int, item any) bool {
	switch {
	case s.keys != nil:
		m, ok := item.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range s.keys {
			if !sameScalar(m[k], v) {
				return false
			}
		}
		return true
	case s.index >= 0:
		return i == s.index
	default:
		return sameScalar(item, s.value)
	}
}

// sameScalar compares across the number types of two JSON decoders.
func sameScalar(a, b any) bool {
	return toFloat(a) == toFloat(b)
}

func toFloat(v any) any {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case map[string]any, []any:
		return nil // not comparable, and no key
	default:
		return n
	}
}
