package sandbox

import (
	"math"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (m *machine) stringFunctions() map[string]lua.LGFunction {
	mapped := func(f func(string) string) lua.LGFunction {
		return func(l *lua.LState) int {
			s := l.CheckString(1)
			m.charge(len(s))
			l.Push(lua.LString(f(s)))
			return 1
		}
	}
	return map[string]lua.LGFunction{
		"byte": m.bytes, "char": m.char, "rep": m.repeat, "sub": m.substring, "format": m.format,
		"lower": mapped(asciiOnly(strings.ToLower)), "upper": mapped(asciiOnly(strings.ToUpper)),
		"reverse": mapped(func(s string) string {
			b := []byte(s)
			slices.Reverse(b)
			return string(b)
		}),
		"find": m.find, "match": m.match, "gmatch": m.gmatch, "gsub": m.gsub,
	}
}

// asciiOnly leaves other letters alone, as the C locale does.
func asciiOnly(f func(string) string) func(string) string {
	return func(s string) string {
		b := []byte(s)
		for i, c := range b {
			if c < 0x80 {
				b[i] = f(string(rune(c)))[0]
			}
		}
		return string(b)
	}
}

// span turns Lua's from and to, which may count from the end, into a Go slice.
func span(length, from, to int) (int, int) {
	if from < 0 {
		from = max(length+from+1, 1)
	}
	from = max(from, 1)
	if to < 0 {
		to = length + to + 1
	}
	to = min(to, length)
	if from > to {
		return 0, 0
	}
	return from - 1, to
}

func (m *machine) bytes(l *lua.LState) int {
	s := l.CheckString(1)
	first := l.OptInt(2, 1)
	from, to := span(len(s), first, l.OptInt(3, first))
	if to-from > 8000 {
		l.RaiseError("string slice too long")
	}
	for _, c := range []byte(s[from:to]) {
		l.Push(lua.LNumber(c))
	}
	return to - from
}

func (m *machine) char(l *lua.LState) int {
	b := make([]byte, 0, l.GetTop())
	for i := 1; i <= l.GetTop(); i++ {
		c := l.CheckInt(i)
		if c < 0 || c > math.MaxUint8 {
			l.ArgError(i, "invalid value")
		}
		b = append(b, byte(c))
	}
	m.charge(len(b))
	l.Push(lua.LString(b))
	return 1
}

func (m *machine) repeat(l *lua.LState) int {
	s, n := l.CheckString(1), l.CheckInt(2)
	if n <= 0 || s == "" {
		l.Push(lua.LString(""))
		return 1
	}
	if n > math.MaxInt32/len(s) {
		m.charge(-1)
	}
	m.charge(n * len(s))
	l.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

func (m *machine) substring(l *lua.LState) int {
	s := l.CheckString(1)
	from, to := span(len(s), l.CheckInt(2), l.OptInt(3, -1))
	l.Push(lua.LString(s[from:to])) // shares its bytes
	return 1
}

// format lends the machine's own after a look at what it would make.
func (m *machine) format(l *lua.LState) int {
	pattern := l.CheckString(1)
	size := len(pattern)
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			continue
		}
		i++
		for i < len(pattern) && strings.IndexByte("-+ #0", pattern[i]) >= 0 {
			i++
		}
		for digits := 0; i < len(pattern) && (pattern[i] >= '0' && pattern[i] <= '9' || pattern[i] == '.'); i++ {
			if digits++; digits > 5 {
				l.RaiseError("invalid format (width or precision too long)")
			}
			if pattern[i] == '.' {
				digits = 2
			}
		}
		size += 1000
		if i >= len(pattern) || strings.IndexByte("cdiouxXeEfgGqs%", pattern[i]) < 0 {
			l.RaiseError("invalid option to 'format'")
		}
	}
	for i := 2; i <= l.GetTop(); i++ {
		if s, ok := l.Get(i).(lua.LString); ok {
			size += 4 * len(s)
		}
	}
	m.charge(size)
	library, _ := l.G.Global.RawGetString("string").(*lua.LTable)
	fn, ok := library.RawGetString("format").(*lua.LFunction)
	if !ok {
		l.RaiseError("format is not there")
	}
	return fn.GFunction(l)
}

func (m *machine) find(l *lua.LState) int {
	s, pattern := l.CheckString(1), l.CheckString(2)
	from := l.OptInt(3, 1)
	if from < 0 {
		from = max(len(s)+from+1, 1)
	}
	from = max(from, 1) - 1
	if from > len(s) {
		l.Push(lua.LNil)
		return 1
	}
	if l.ToBool(4) {
		at := strings.Index(s[from:], pattern)
		if at < 0 {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(from + at + 1))
		l.Push(lua.LNumber(from + at + len(pattern)))
		return 2
	}
	x := m.matcher(s, pattern)
	start, end := x.search(from)
	if start < 0 {
		l.Push(lua.LNil)
		return 1
	}
	l.Push(lua.LNumber(start + 1))
	l.Push(lua.LNumber(end))
	return 2 + x.pushCaptures(start, end, false)
}

func (m *machine) match(l *lua.LState) int {
	s := l.CheckString(1)
	from := l.OptInt(3, 1)
	if from < 0 {
		from = max(len(s)+from+1, 1)
	}
	x := m.matcher(s, l.CheckString(2))
	start, end := -1, -1
	if from = max(from, 1) - 1; from <= len(s) {
		start, end = x.search(from)
	}
	if start < 0 {
		l.Push(lua.LNil)
		return 1
	}
	return x.pushCaptures(start, end, true)
}

func (m *machine) gmatch(l *lua.LState) int {
	x := m.matcher(l.CheckString(1), l.CheckString(2))
	x.anchored, x.pattern = false, l.CheckString(2)
	from := 0
	l.Push(l.NewFunction(func(l *lua.LState) int {
		if from > len(x.source) {
			l.Push(lua.LNil)
			return 1
		}
		start, end := x.search(from)
		if start < 0 {
			from = len(x.source) + 1
			l.Push(lua.LNil)
			return 1
		}
		from = end
		if start == end {
			from++
		}
		return x.pushCaptures(start, end, true)
	}))
	return 1
}

func (m *machine) gsub(l *lua.LState) int {
	s := l.CheckString(1)
	x := m.matcher(s, l.CheckString(2))
	replacement := l.Get(3)
	switch replacement.(type) {
	case lua.LString, lua.LNumber, *lua.LTable, *lua.LFunction:
	default:
		l.ArgError(3, "string/function/table expected")
	}
	most := l.OptInt(4, math.MaxInt32)
	var out []byte
	at, count := 0, 0
	put := func(s string) {
		m.charge(2 * len(s))
		out = append(out, s...)
	}
	for count < most {
		end := x.at(at)
		if end >= 0 {
			count++
			put(m.substitute(x, at, end, replacement))
		}
		switch {
		case end > at:
			at = end
		case at < len(s):
			put(s[at : at+1])
			at++
		default:
			at++
		}
		if at > len(s) || x.anchored {
			break
		}
	}
	if at < len(s) {
		put(s[at:])
	}
	l.Push(lua.LString(out))
	l.Push(lua.LNumber(count))
	return 2
}

// substitute is what stands for one match.
func (m *machine) substitute(x *matcher, start, end int, replacement lua.LValue) string {
	l := m.state
	whole := x.source[start:end]
	var v lua.LValue
	switch r := replacement.(type) {
	case *lua.LTable:
		v = l.GetTable(r, x.capture(0, start, end))
	case *lua.LFunction:
		top := l.GetTop()
		l.Push(r)
		n := x.pushCaptures(start, end, true)
		l.Call(n, 1)
		v = l.Get(-1)
		l.SetTop(top)
	default:
		return x.expand(r.String(), start, end)
	}
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return v.String()
	}
	if lua.LVIsFalse(v) {
		return whole
	}
	l.RaiseError("invalid replacement value (a %s)", v.Type().String())
	return ""
}
