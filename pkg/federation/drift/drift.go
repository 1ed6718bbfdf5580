// Package drift says in brief where an object differs from what was wanted of
// it. It speaks of the wanted fields only: the rest is not the federation's.
package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Difference is one field.
type Difference struct {
	Path         string
	Wanted, Have any
	Missing      bool // the object does not have the field
}

// String is "PATH is HAVE, wanted WANTED", without values that are long.
func (d Difference) String() string {
	if d.Missing {
		return d.Path + " is missing"
	}
	have, wanted := brief(d.Have), brief(d.Wanted)
	if have == "" || wanted == "" {
		return d.Path + " is another"
	}
	return fmt.Sprintf("%s is %s, wanted %s", d.Path, have, wanted)
}

const longest = 60

func brief(v any) string {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) > longest {
		return ""
	}
	return string(raw)
}

// keys by which the items of a list are told apart, the first that all have.
var keys = []string{"name", "containerPort", "port", "mountPath", "key", "ip", "topologyKey", "uid"}

// silent are never compared: who an object is, and what a server keeps.
var silent = map[string]bool{
	".apiVersion": true, ".kind": true, ".status": true,
	".metadata.uid": true, ".metadata.resourceVersion": true, ".metadata.generation": true,
	".metadata.creationTimestamp": true, ".metadata.managedFields": true,
	".metadata.name": true, ".metadata.namespace": true,
}

// Between lists the wanted fields that an object has otherwise, in the order of
// their paths. Values of a Secret are not to be shown: see Redact.
func Between(wanted, have map[string]any) []Difference {
	var out []Difference
	compareMaps("", wanted, have, &out)
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func compareMaps(path string, wanted, have map[string]any, out *[]Difference) {
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		at := path + "." + k
		if strings.ContainsAny(k, "./") {
			at = path + "[" + k + "]"
		}
		if silent[at] || provenance(k) {
			continue
		}
		v, ok := have[k]
		if !ok {
			if !empty(wanted[k]) {
				*out = append(*out, Difference{Path: strings.TrimPrefix(at, "."), Wanted: wanted[k], Missing: true})
			}
			continue
		}
		compare(at, wanted[k], v, out)
	}
}

// provenance is written with each apply and is never a reason to write.
func provenance(key string) bool {
	return key == "isthmus.dev/template-revision" || key == "isthmus.dev/epoch"
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}

func compare(path string, wanted, have any, out *[]Difference) {
	switch w := wanted.(type) {
	case map[string]any:
		if h, ok := have.(map[string]any); ok {
			compareMaps(path, w, h, out)
			return
		}
	case []any:
		if h, ok := have.([]any); ok {
			compareLists(path, w, h, out)
			return
		}
	}
	if !same(wanted, have) {
		*out = append(*out, Difference{Path: strings.TrimPrefix(path, "."), Wanted: wanted, Have: have})
	}
}

func compareLists(path string, wanted, have []any, out *[]Difference) {
	key := keyOf(wanted)
	if key == "" || keyOf(have) != key && len(have) > 0 {
		if len(wanted) != len(have) {
			*out = append(*out, Difference{Path: strings.TrimPrefix(path, "."), Wanted: wanted, Have: have})
			return
		}
		for i := range wanted {
			compare(fmt.Sprintf("%s[%d]", path, i), wanted[i], have[i], out)
		}
		return
	}
	for _, w := range wanted {
		item, _ := w.(map[string]any)
		at := fmt.Sprintf("%s[%v]", path, item[key])
		i := slices.IndexFunc(have, func(h any) bool { m, _ := h.(map[string]any); return same(m[key], item[key]) })
		if i < 0 {
			*out = append(*out, Difference{Path: strings.TrimPrefix(at, "."), Wanted: w, Missing: true})
			continue
		}
		compare(at, w, have[i], out)
	}
}

// keyOf is the key that all items have, each its own.
func keyOf(list []any) string {
	for _, key := range keys {
		seen := map[any]bool{}
		for _, item := range list {
			m, _ := item.(map[string]any)
			v, ok := m[key]
			if _, scalar := v.(string); !ok || !scalar && !isNumber(v) || seen[v] {
				break
			}
			seen[v] = true
		}
		if len(seen) == len(list) && len(list) > 0 {
			return key
		}
	}
	return ""
}

// same compares across the number types of two JSON decoders, and quantities
// by their amount.
func same(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	x, okX := a.(string)
	y, okY := b.(string)
	if !okX || !okY || x == "" || y == "" {
		return false
	}
	p, errP := resource.ParseQuantity(x)
	q, errQ := resource.ParseQuantity(y)
	return errP == nil && errQ == nil && p.Cmp(q) == 0
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case int32:
		return float64(n), true
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// Redact takes the values out.
func Redact(all []Difference) []Difference {
	out := slices.Clone(all)
	for i := range out {
		out[i].Wanted, out[i].Have = redacted, redacted
	}
	return out
}

var redacted = strings.Repeat("*", longest+1)

// shown is how many differences are told.
const shown = 5

// Describe tells the first few; "" when there is none.
func Describe(all []Difference) string {
	parts := make([]string, 0, shown+1)
	for i, d := range all {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(all)-shown))
			break
		}
		parts = append(parts, d.String())
	}
	return strings.Join(parts, "; ")
}

func isNumber(v any) bool {
	_, ok := number(v)
	return ok
}
