package sandbox

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

// deepestValue is how deep values may nest, in and out; a table that contains
// itself is deeper than that.
const deepestValue = 100

var (
	errDeep  = errors.New("the value is nested too deeply, or contains itself")
	errHoles = errors.New("a list has holes, or a table has both numbers and names as keys")
)

// toLua turns a JSON value into the machine's.
func (m *machine) toLua(v any, depth int) (lua.LValue, error) {
	if depth > deepestValue {
		return nil, errDeep
	}
	if !m.meter.take(entryBytes) {
		return nil, m.meter.over
	}
	switch x := v.(type) {
	case nil:
		return lua.LNil, nil
	case bool:
		return lua.LBool(x), nil
	case string:
		return lua.LString(x), nil
	case int:
		return lua.LNumber(x), nil
	case int32:
		return lua.LNumber(x), nil
	case int64:
		return lua.LNumber(x), nil
	case float64:
		return lua.LNumber(x), nil
	case []any:
		t := m.state.CreateTable(len(x), 0)
		m.lists[t] = true
		for i, e := range x {
			item, err := m.toLua(e, depth+1)
			if err != nil {
				return nil, err
			}
			t.RawSetInt(i+1, item)
		}
		return t, nil
	case map[string]any:
		t := m.state.CreateTable(0, len(x))
		for k, e := range x {
			item, err := m.toLua(e, depth+1)
			if err != nil {
				return nil, err
			}
			t.RawSetString(k, item)
		}
		return t, nil
	}
	return nil, fmt.Errorf("a %T is no JSON value", v)
}

// omitted stands for an empty table that may be a list or a map.
type omitted struct{}

// fromLua turns a value of the machine into JSON. references are the values at
// the same place in what the script was given: they tell integers from floats,
// and empty lists from empty maps.
func (m *machine) fromLua(v lua.LValue, references []any, depth int) (any, error) {
	out, err := m.convert(v, references, depth)
	if _, ok := out.(omitted); ok {
		return map[string]any{}, err
	}
	return out, err
}

func (m *machine) convert(v lua.LValue, references []any, depth int) (any, error) {
	if depth > deepestValue {
		return nil, errDeep
	}
	if !m.meter.take(entryBytes) {
		return nil, m.meter.over
	}
	switch x := v.(type) {
	case *lua.LNilType:
		return nil, nil
	case lua.LBool:
		return bool(x), nil
	case lua.LString:
		if !utf8.ValidString(string(x)) {
			return nil, errors.New("a string is not UTF-8")
		}
		return string(x), nil
	case lua.LNumber:
		return number(float64(x), references)
	case *lua.LTable:
		return m.table(x, references, depth)
	}
	return nil, fmt.Errorf("a %s is no value for an object", v.Type())
}

// number: integers are integers, as large as they can be told from others.
func number(n float64, references []any) (any, error) {
	for _, r := range references {
		switch x := r.(type) {
		case int64:
			if float64(x) == n {
				return x, nil // it may have more digits than the machine's numbers
			}
		case float64:
			if x == n {
				return x, nil
			}
		}
	}
	switch {
	case math.IsNaN(n) || math.IsInf(n, 0):
		return nil, errors.New("a number is infinite or not a number")
	case n == math.Trunc(n) && math.Abs(n) <= 1<<53:
		return int64(n), nil
	}
	return n, nil
}

func (m *machine) table(t *lua.LTable, references []any, depth int) (any, error) {
	names, largest, count := map[string]lua.LValue{}, 0, 0
	var bad error
	t.ForEach(func(k, v lua.LValue) {
		switch k := k.(type) {
		case lua.LString:
			names[string(k)] = v
		case lua.LNumber:
			if i := int(k); lua.LNumber(i) == k && i >= 1 {
				largest = max(largest, i)
				count++
				return
			}
			bad = errHoles
		default:
			bad = fmt.Errorf("a %s cannot be a key", k.Type())
		}
	})
	switch {
	case bad != nil:
		return nil, bad
	case count > 0 && (len(names) > 0 || largest != count):
		return nil, errHoles
	case count > 0:
		return m.list(t, count, references, depth)
	case len(names) > 0:
		return m.object(names, references, depth)
	case m.lists[t]:
		return []any{}, nil
	}
	for _, r := range references {
		switch r.(type) {
		case []any:
			return []any{}, nil
		case map[string]any:
			return map[string]any{}, nil
		}
	}
	return omitted{}, nil
}

func (m *machine) list(t *lua.LTable, n int, references []any, depth int) (any, error) {
	out := make([]any, 0, n)
	for i := 1; i <= n; i++ {
		var below []any
		for _, r := range references {
			if l, ok := r.([]any); ok && i <= len(l) {
				below = append(below, l[i-1])
			}
		}
		item, err := m.fromLua(t.RawGetInt(i), below, depth+1)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, item)
	}
	return out, nil
}

func (m *machine) object(names map[string]lua.LValue, references []any, depth int) (any, error) {
	out := make(map[string]any, len(names))
	for name, v := range names {
		if !utf8.ValidString(name) {
			return nil, errors.New("a name is not UTF-8")
		}
		var below []any
		for _, r := range references {
			if o, ok := r.(map[string]any); ok {
				if b, ok := o[name]; ok {
					below = append(below, b)
				}
			}
		}
		item, err := m.convert(v, below, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, leave := item.(omitted); !leave {
			out[name] = item
		}
	}
	return out, nil
}
