package adopt

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Change is one difference between two objects. Path is written as in
// spec.template.spec.containers[name=web].image.
type Change struct {
	Path     string
	From, To any // nil: not there
}

func (c Change) String() string {
	switch {
	case c.From == nil:
		return fmt.Sprintf("%s: added %s", c.Path, show(c.To))
	case c.To == nil:
		return fmt.Sprintf("%s: removed %s", c.Path, show(c.From))
	}
	return fmt.Sprintf("%s: %s -> %s", c.Path, show(c.From), show(c.To))
}

const shownValue = 120

func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	s := string(raw)
	if len(s) > shownValue {
		// A cut through a character would not be text any more.
		s = strings.ToValidUTF8(s[:shownValue], "") + "..."
	}
	return s
}

// Diff lists what differs between two values, in the order of their fields. A
// list whose items are told apart by a name or another key is compared item by
// item, and so that a mere change of order shows as one.
func Diff(from, to any) []Change {
	return diff(nil, "", from, to)
}

func diff(out []Change, path string, from, to any) []Change {
	if equal(from, to) {
		return out
	}
	switch f := from.(type) {
	case map[string]any:
		if t, ok := to.(map[string]any); ok {
			return diffMaps(out, path, f, t)
		}
	case []any:
		if t, ok := to.([]any); ok {
			return diffLists(out, path, f, t)
		}
	}
	return append(out, Change{Path: path, From: from, To: to})
}

func diffMaps(out []Change, path string, from, to map[string]any) []Change {
	names := slices.Sorted(maps.Keys(from))
	for name := range to {
		if _, ok := from[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out = diff(out, join(path, name), from[name], to[name])
	}
	return out
}

func join(path, name string) string {
	if strings.ContainsAny(name, ".[]/") {
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// itemKeys tell the items of a list apart, the first that fits.
var itemKeys = [][]string{
	{"name"},
	{"containerPort", "protocol"},
	{"port", "protocol"},
	{"mountPath"},
	{"devicePath"},
	{"topologyKey", "whenUnsatisfiable"},
	{"ip"},
	{"type"},
	{"key"},
	{"uid"},
}

func diffLists(out []Change, path string, from, to []any) []Change {
	keys, ok := keyOf(from, to)
	if !ok {
		if len(from) != len(to) {
			return append(out, Change{Path: path, From: from, To: to})
		}
		for i := range from {
			out = diff(out, fmt.Sprintf("%s[%d]", path, i), from[i], to[i])
		}
		return out
	}
	was, will := index(from, keys), index(to, keys)
	before := len(out)
	for _, item := range from {
		id := identify(item, keys)
		out = diff(out, path+"["+id+"]", item, will[id])
	}
	for _, item := range to {
		id := identify(item, keys)
		if _, ok := was[id]; !ok {
			out = append(out, Change{Path: path + "[" + id + "]", To: item})
		}
	}
	if len(out) == before {
		// The same items in another order.
		return append(out, Change{Path: path, From: order(from, keys), To: order(to, keys)})
	}
	return out
}

func order(list []any, keys []string) []any {
	out := make([]any, 0, len(list))
	for _, item := range list {
		out = append(out, identify(item, keys))
	}
	return out
}

// keyOf finds keys that every item of both lists has, each value once.
func keyOf(lists ...[]any) ([]string, bool) {
	for _, keys := range itemKeys {
		if !slices.ContainsFunc(lists, func(l []any) bool { return !tellsApart(l, keys) }) {
			return keys, true
		}
	}
	return nil, false
}

func tellsApart(list []any, keys []string) bool {
	seen := map[string]bool{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok || m[keys[0]] == nil {
			return false
		}
		id := identify(item, keys)
		if seen[id] {
			return false
		}
		seen[id] = true
	}
	return true
}

func index(list []any, keys []string) map[string]any {
	out := make(map[string]any, len(list))
	for _, item := range list {
		out[identify(item, keys)] = item
	}
	return out
}

func identify(item any, keys []string) string {
	m, _ := item.(map[string]any)
	parts := make([]string, 0, len(keys))
	for _, k := range keys {
		if m[k] != nil {
			parts = append(parts, fmt.Sprintf("%s=%v", k, m[k]))
		}
	}
	return strings.Join(parts, ",")
}

// equal compares values as the API means them: numbers across the types of
// decoders.
func equal(a, b any) bool {
	switch x := a.(type) {
	case int64:
		switch y := b.(type) {
		case int64:
			return x == y
		case float64:
			return float64(x) == y
		}
		return false
	case float64:
		if y, ok := b.(int64); ok {
			return x == float64(y)
		}
	}
	return reflect.DeepEqual(a, b)
}

// Describe says changes in at most limit characters.
func Describe(changes []Change, limit int) string {
	var b strings.Builder
	for i, c := range changes {
		s := c.String()
		if i > 0 {
			s = "; " + s
		}
		if b.Len()+len(s) > limit {
			if i == 0 {
				return strings.ToValidUTF8(s[:limit], "") + "..."
			}
			fmt.Fprintf(&b, "; and %d more", len(changes)-i)
			break
		}
		b.WriteString(s)
	}
	return b.String()
}
