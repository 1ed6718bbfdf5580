package sandbox

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What scripts find, by library. The machine's own functions are lent; those
// that can take any amount of memory or time in one step are ours.
var (
	baseNames = []string{
		"assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "select",
		"setmetatable", "tonumber", "tostring", "type", "_VERSION",
	}
	stringNames = []string{"len"}
	tableNames  = []string{"getn", "maxn", "remove", "sort"}
	mathNames   = []string{
		"abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "deg", "exp", "floor", "fmod", "frexp", "huge",
		"ldexp", "log", "log10", "max", "min", "mod", "modf", "pi", "pow", "rad", "random", "sin", "sinh", "sqrt", "tan", "tanh",
	}
	osNames = []string{"clock", "date", "difftime", "time"}
)

const (
	// largestList bounds the indexes that are kept as a list.
	largestList = 1 << 16
	// widestGap is how far beyond a list's end an index may be set.
	widestGap = 1024
	// entryBytes is what an entry of a table takes, on average.
	entryBytes = 64
)

// furnish makes a fresh environment, so that calls leave nothing to each other.
func (m *machine) furnish(modules map[string]map[string]Function) {
	l := m.state
	m.env = l.NewTable()
	lend := func(to *lua.LTable, from lua.LValue, names []string) {
		library, ok := from.(*lua.LTable)
		if !ok {
			return
		}
		for _, name := range names {
			to.RawSetString(name, library.RawGetString(name))
		}
	}
	lend(m.env, l.G.Global, baseNames)
	m.env.RawSetString("_G", m.env)
	libraries := map[string]*lua.LTable{}
	for name, names := range map[string][]string{"string": stringNames, "table": tableNames, "math": mathNames, "os": osNames} {
		libraries[name] = l.NewTable()
		lend(libraries[name], l.G.Global.RawGetString(name), names)
		m.env.RawSetString(name, libraries[name])
	}
	m.offer(m.env, map[string]lua.LGFunction{
		concatName: m.concatenate, setName: m.set(m.state.SetTable), keyName: m.key, "unpack": m.unpack,
		"rawset": m.set(func(_, k, v lua.LValue) { l.RawSet(l.CheckTable(1), k, v) }),
		"pcall":  m.protected("pcall"), "xpcall": m.protected("xpcall"),
		"print": func(*lua.LState) int { return 0 },
		"require": func(l *lua.LState) int {
			l.Push(m.require(l.CheckString(1), libraries, modules))
			return 1
		},
	})
	m.offer(libraries["table"], map[string]lua.LGFunction{"concat": m.join, "insert": m.insert})
	m.offer(libraries["string"], m.stringFunctions())
	mt := l.NewTable()
	mt.RawSetString("__index", libraries["string"])
	mt.RawSetString("__metatable", lua.LFalse)
	l.SetMetatable(lua.LString(""), mt)
}

func (m *machine) offer(to *lua.LTable, functions map[string]lua.LGFunction) {
	for name, fn := range functions {
		to.RawSetString(name, m.state.NewFunction(fn))
	}
}

func (m *machine) require(name string, libraries map[string]*lua.LTable, modules map[string]map[string]Function) *lua.LTable {
	if t, ok := libraries[name]; ok {
		return t
	}
	functions, ok := modules[name]
	if !ok {
		m.state.RaiseError("there is no module %q", truncate(name))
	}
	t := m.state.NewTable()
	for fname, fn := range functions {
		t.RawSetString(fname, m.state.NewFunction(m.lent(name+"."+fname, fn)))
	}
	return t
}

// lent calls a Go function from Lua.
func (m *machine) lent(name string, fn Function) lua.LGFunction {
	return func(l *lua.LState) int {
		args := make([]any, 0, l.GetTop())
		for i := 1; i <= l.GetTop(); i++ {
			v, err := m.fromLua(l.Get(i), nil, 0)
			if err != nil {
				l.RaiseError("%s: argument %d: %s", name, i, err.Error())
			}
			args = append(args, v)
		}
		results, err := fn(args)
		if err != nil {
			l.RaiseError("%s: %s", name, truncate(err.Error()))
		}
		for _, r := range results {
			v, err := m.toLua(r, 0)
			if err != nil {
				l.RaiseError("%s: %s", name, err.Error())
			}
			l.Push(v)
		}
		return len(results)
	}
}

// concatenate is the operator "..".
func (m *machine) concatenate(l *lua.LState) int {
	total := 0
	parts := make([]string, 0, l.GetTop())
	for i := 1; i <= l.GetTop(); i++ {
		switch v := l.Get(i).(type) {
		case lua.LString:
			parts = append(parts, string(v))
		case lua.LNumber:
			parts = append(parts, v.String())
		default:
			l.RaiseError("attempt to concatenate a %s value", v.Type().String())
		}
		total += len(parts[i-1])
	}
	m.charge(total)
	l.Push(lua.LString(strings.Join(parts, "")))
	return 1
}

// set is an assignment to a computed index, and rawset.
func (m *machine) set(assign func(t, k, v lua.LValue)) lua.LGFunction {
	return func(l *lua.LState) int {
		m.mayEnter(l, l.Get(1), l.Get(2))
		assign(l.Get(1), l.Get(2), l.Get(3))
		return 0
	}
}

// mayEnter accounts for what a key adds to a table.
func (m *machine) mayEnter(l *lua.LState, table, key lua.LValue) {
	t, ok := table.(*lua.LTable)
	if !ok {
		l.RaiseError("attempt to index a %s value", table.Type().String())
	}
	switch k := key.(type) {
	case lua.LNumber:
		if k != k { //nolint:gocritic // that is what NaN is
			l.RaiseError("table index is NaN")
		}
		if gap := float64(k) - float64(t.MaxN()); gap > 1 && k < largestList {
			if gap > widestGap {
				l.RaiseError("index %s is too far beyond the end of the list", k.String())
			}
			m.charge(int(gap) * 16)
		}
	case *lua.LNilType:
		l.RaiseError("table index is nil")
	}
	m.charge(entryBytes)
}

// key is the computed index of a constructor, or of one assignment of several.
func (m *machine) key(l *lua.LState) int {
	if k, ok := l.Get(1).(lua.LNumber); ok && k > widestGap && k < largestList {
		l.RaiseError("index %s is too large here", k.String())
	}
	m.charge(entryBytes * 16)
	l.Push(l.Get(1))
	return 1
}

// failureSteps is what a caught failure counts: its trace is costly.
const failureSteps = 2000

func (m *machine) protected(name string) lua.LGFunction {
	call, ok := m.state.G.Global.RawGetString(name).(*lua.LFunction)
	return func(l *lua.LState) int {
		if !ok {
			l.RaiseError("%s is not there", name)
		}
		n := call.GFunction(l)
		if n > 0 && l.Get(-n) == lua.LFalse {
			m.meter.steps -= failureSteps
		}
		return n
	}
}

func (m *machine) unpack(l *lua.LState) int {
	t := l.CheckTable(1)
	first, last := l.OptInt(2, 1), l.OptInt(3, t.Len())
	if last-first >= 8000 || last-first < -largestList && last < first-largestList*2 {
		l.RaiseError("too many results to unpack")
	}
	for i := first; i <= last; i++ {
		l.Push(t.RawGetInt(i))
	}
	return max(last-first+1, 0)
}

func (m *machine) join(l *lua.LState) int {
	t, separator := l.CheckTable(1), l.OptString(2, "")
	first, last := l.OptInt(3, 1), l.OptInt(4, t.Len())
	var b strings.Builder
	for i := first; i <= last; i++ {
		if !m.meter.step() {
			m.charge(0)
			l.RaiseError("%s", m.meter.Err().Error())
		}
		part := t.RawGetInt(i)
		switch part.(type) {
		case lua.LString, lua.LNumber:
		default:
			l.RaiseError("invalid value (%s) at index %d in table for 'concat'", part.Type().String(), i)
		}
		s := part.String()
		m.charge(len(s) + len(separator))
		b.WriteString(s)
		if i < last {
			b.WriteString(separator)
		}
	}
	m.charge(b.Len())
	l.Push(lua.LString(b.String()))
	return 1
}

func (m *machine) insert(l *lua.LState) int {
	t := l.CheckTable(1)
	m.charge(entryBytes)
	switch l.GetTop() {
	case 2:
		t.Append(l.Get(2))
	case 3:
		at := l.CheckInt(2)
		if at < 1 || at > t.Len()+1 {
			l.RaiseError("%s", fmt.Sprintf("bad argument #2 to insert: position %d is out of bounds", at))
		}
		t.Insert(at, l.Get(3))
	default:
		l.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

func (m *machine) charge(n int) { m.meter.charge(m.state, n) }
