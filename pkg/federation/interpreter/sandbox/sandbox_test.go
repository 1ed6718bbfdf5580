package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func small() *Sandbox {
	l := DefaultLimits()
	l.Steps, l.Bytes, l.Machines = 300_000, 8<<20, 2
	return New(l, map[string]map[string]Function{"kube": {"double": func(args []any) ([]any, error) {
		n, ok := args[0].(int64)
		if !ok {
			return nil, errors.New("no number")
		}
		return []any{2 * n}, nil
	}}})
}

func run(t *testing.T, s *Sandbox, body string, args ...any) ([]any, error) {
	t.Helper()
	script, err := s.Compile(t.Context(), "function F(a, b)\n"+body+"\nend", "F")
	if err != nil {
		return nil, err
	}
	return s.Call(t.Context(), script, args...)
}

func TestResults(t *testing.T) {
	object := map[string]any{
		"n": int64(3), "big": int64(9007199254740993), "f": 1.5, "whole": 2.0, "s": "x", "b": true,
		"list": []any{int64(1), "two", map[string]any{"three": int64(3)}}, "none": []any{}, "empty": map[string]any{},
	}
	for _, c := range []struct {
		name, body string
		want       any
	}{
		{"unchanged", "return a", object},
		{"empty list kept", "return a.none", []any{}},
		{"empty map", "return a.empty", map[string]any{}},
		{"new list in the place of a list", "a.list = {} return a", func() any { o := maps.Clone(object); o["list"] = []any{}; return o }()},
		{"new empty table that nothing tells", "return {x = {}, y = 1}", map[string]any{"y": int64(1)}},
		{"nothing", "return nil", nil},
		{"number", "return a.n + 1", int64(4)},
		{"fraction", "return a.n / 2", 1.5},
		{"concatenation", "return a.s .. '-' .. a.n .. '-' .. 'z'", "x-3-z"},
		{"long concatenation", "return " + strings.Repeat("'a' .. ", 400) + "'b'", strings.Repeat("a", 400) + "b"},
		{"computed index", "local t = {} for i = 1, 5 do t[i] = i * i end return t", []any{int64(1), int64(4), int64(9), int64(16), int64(25)}},
		{"append", "local t = {} t[#t+1] = 'a' t[#t+1] = 'b' return t", []any{"a", "b"}},
		{"computed name", "local t = {} local k = 'key' t[k .. 1] = true return t", map[string]any{"key1": true}},
		{"swap", "local t = {1, 2} t[1], t[2] = t[2], t[1] return t", []any{int64(2), int64(1)}},
		{"constructor with keys", "local k = 'x' return {[k] = 1, [k .. 'y'] = 2}", map[string]any{"x": int64(1), "xy": int64(2)}},
		{"a result in parentheses is one", "local function two() return 1, 2 end local t = {} t[1] = two() return t", []any{int64(1)}},
		{"module", "local kube = require('kube') return kube.double(21)", int64(42)},
		{"methods of strings", "return ('abc'):upper() .. ('x'):rep(3)", "ABCxxx"},
		{"format", "return string.format('%s=%d %5.2f%%', 'a', 7, 1.234)", "a=7  1.23%"},
		{"pcall", "local ok, e = pcall(function() error('bad') end) return tostring(ok)", "false"},
		{"metatable", "local t = setmetatable({}, {__index = function(_, k) return k .. '!' end}) return t.x", "x!"},
		{"rawset", "local t = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v + 1) end}) t[1] = 1 return t", []any{int64(2)}},
		{"sort and concat", "local t = {'c', 'a', 'b'} table.sort(t) return table.concat(t, ',')", "a,b,c"},
		{"time", "return os.time() > 1000000", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := run(t, small(), c.body, object)
			if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], c.want) {
				t.Fatalf("got %#v, %v; want %#v", got, err, c.want)
			}
		})
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{`string.find('hello world', 'o w')`, "5,7"},
		{`string.find('a.b', '.', 1, true)`, "2,2"},
		{`string.find('hello', 'l+')`, "3,4"},
		{`string.find('hello', '(l)(l)')`, "3,4,l,l"},
		{`string.find('abc', 'b', -1)`, "nil"},
		{`string.find('', '')`, "1,0"},
		{`string.match('nginx:1.27', ':(.+)$')`, "1.27"},
		{`string.match('key = value', '^(%w+)%s*=%s*(%w+)$')`, "key,value"},
		{`string.match('2026-11-30', '(%d+)-(%d+)-(%d+)')`, "2026,11,30"},
		{`string.match('f(a(b)c)d', '%b()')`, "(a(b)c)"},
		{`string.match('THE (quick) fox', '%f[%a]%a+', 5)`, "quick"},
		{`string.match('"x"', '(["\'])(.-)%1')`, `",x`},
		{`string.match('abc', '()b()')`, "2,3"},
		{`string.match('x-y', '[%w-]+')`, "x-y"},
		{`string.match('a]b', '[]]')`, "]"},
		{`string.match('abc', '[^a]+')`, "bc"},
		{`string.match('aaa', 'a-')`, ""},
		{`string.match('ab', 'a?b?c?')`, "ab"},
		{`string.gsub('hello', 'l', 'L')`, "heLLo,2"},
		{`string.gsub('hello', '', '-')`, "-h-e-l-l-o-,6"},
		{`string.gsub('a b', '(%w) (%w)', '%2 %1 %0 %%')`, "b a a b %,1"},
		{`string.gsub('abc', '%w', {a = '1', b = true and 'x'})`, "1xc,3"},
		{`string.gsub('abc', '%w', function(c) if c ~= 'b' then return c .. c end end)`, "aabcc,3"},
		{`string.gsub('abc', '^a', 'x')`, "xbc,1"},
		{`string.gsub('aaaa', 'a', 'b', 2)`, "bbaa,2"},
		{`(function() local s = '' for w in string.gmatch('one two', '%a+') do s = s .. w .. ';' end return s end)()`, "one;two;"},
		{`string.byte('AB', 1, 2)`, "65,66"},
		{`string.sub('hello', 2, -2)`, "ell"},
		{`string.sub('hello', -3)`, "llo"},
		{`string.rep('ab', 3)`, "ababab"},
		{`string.reverse('abc')`, "cba"},
		{`string.upper('añb')`, "AñB"},
	} {
		t.Run(c.expression, func(t *testing.T) {
			got, err := run(t, small(), "local r = {"+c.expression+"} local s = {} for i = 1, math.max(#r, 1) do s[i] = tostring(r[i]) end return table.concat(s, ',')")
			if err != nil || got[0] != c.want {
				t.Fatalf("got %v, %v; want %q", got, err, c.want)
			}
		})
	}
}

// Nothing that takes too much may succeed, take long, or take memory; whatever
// the script catches.
func TestBombs(t *testing.T) {
	bodies := map[string]string{
		"endless loop":          "while true do end",
		"endless caught":        "while true do pcall(function() while true do end end) end",
		"recursion":             "local function f() return 1 + f() end return f()",
		"tail recursion":        "local function f() return f() end return f()",
		"caught recursion":      "local function f() pcall(f) f() end f()",
		"doubling string":       "local s = 'x' while true do s = s .. s end",
		"doubling, caught":      "local s = ('x'):rep(4000000) while true do pcall(function() local t = s .. s .. s end) end",
		"rep":                   "return ('x'):rep(1e9)",
		"rep overflow":          "return ('xxxx'):rep(2^62)",
		"list with a far index": "local t = {} for i = 1, 1e6 do t = {} t[60000] = 1 end",
		"list with gaps":        "local l = {} for i = 1, 1e6 do local t = {} t[1000] = 1 l[i] = t end",
		"constructor, far":      "local k = 60000 local t = {[k] = 1}",
		"assignment of several": "local k, t = 60000, {} t[k], t[k+1] = 1, 2",
		"growing table":         "local t = {} for i = 1, 1e9 do t[i] = {} end",
		"growing by insert":     "local t = {} while true do table.insert(t, 1, 'x') end",
		"insert far":            "local t = {} table.insert(t, 60000, 1)",
		"rawset far":            "rawset({}, 60000, 1)",
		"concat":                "local s, t = ('x'):rep(100000), {} for i = 1, 1000 do t[i] = s end return table.concat(t)",
		"concat far":            "return table.concat({}, '', 1, 1e12)",
		"gsub":                  "return (('x'):rep(100000)):gsub('x', ('y'):rep(10000))",
		"format width":          "return string.format('%999999999d', 1)",
		"format star":           "return string.format('%*d', 999999999, 1)",
		"pattern":               "return (('a'):rep(3000)):find(('a*'):rep(20) .. 'b')",
		"caught pattern":        "while true do pcall(string.find, ('a'):rep(3000), ('a-'):rep(20) .. 'b') end",
		"unpack":                "return unpack({}, 1, 1e9)",
		"unpack overflow":       "return unpack({}, -2^53, 2^53)",
		"byte":                  "return (('x'):rep(100000)):byte(1, -1)",
		"many results":          "local t = {} for i = 1, 7000 do t[i] = i end local function f() return unpack(t) end return f(f(f()))",
		"metatable chain":       "local t = {} setmetatable(t, {__index = t}) return t.x",
		"sort that never ends":  "local t = {} for i = 1, 2000 do t[i] = i end table.sort(t, function(a, b) while true do end end)",
		"cyclic result":         "local t = {} t.t = t return t",
		"doubling result":       "local t = {1} for i = 1, 60 do t = {t, t} end return t",
		"deep result":           "local t = {} for i = 1, 1000 do t = {t} end return t",
	}
	limits := DefaultLimits()
	limits.Steps, limits.Bytes, limits.Time, limits.Machines = 300_000, 8<<20, 10*time.Second, 1
	s := New(limits, nil)
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, s, body)
			if name == "many results" && err == nil {
				return // within the limits
			}
			if err == nil {
				t.Fatalf("succeeded with %.100v", fmt.Sprint(got))
			}
		})
	}
	if got, err := run(t, s, "return 1"); err != nil || got[0] != int64(1) {
		t.Fatalf("afterwards: %v, %v", got, err)
	}
}

func TestNothingElse(t *testing.T) {
	for _, name := range []string{
		"io", "debug", "package", "load", "loadstring", "loadfile", "dofile", "module", "getfenv", "setfenv", "newproxy", "collectgarbage",
		"coroutine", "channel", "os.execute", "os.getenv", "os.exit", "os.remove", "os.rename", "os.tmpname", "os.setenv", "string.dump", "_printregs",
	} {
		got, err := run(t, small(), "return type("+name+")")
		if err != nil || got[0] != "nil" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, body := range []string{"require('os.path')", "require('/etc/passwd')", "getmetatable('').__index.upper = nil"} {
		if got, err := run(t, small(), body); err == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
}

// One call leaves nothing to the next, whoever the script is of.
func TestIsolation(t *testing.T) {
	s := small()
	if _, err := run(t, s, "leak = 1 string.upper = nil table.insert = nil _G.tostring = nil math.floor = function() return 7 end"); err != nil {
		t.Fatal(err)
	}
	got, err := run(t, s, "return {tostring(leak), ('a'):upper(), math.floor(1.5), type(table.insert)}")
	if want := []any{"nil", "A", int64(1), "function"}; err != nil || !reflect.DeepEqual(got[0], want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
}

func TestErrors(t *testing.T) {
	s := small()
	for _, c := range []struct {
		name, source, want string
		cause              error
	}{
		{"syntax", "function F(a)\n  if a then\nend", "line 3: the script ends too early", nil},
		{"syntax in the middle", "function F(a)\n  local = 3\nend", `line 2: syntax error near "="`, nil},
		{"another function", "function G() end", "the script does not define function F", nil},
		{"not a function", "F = 3", "the script does not define function F", nil},
		{"chunk fails", "local x = nil\nx.y = 1\nfunction F() end", "line 2: attempt to index a non-table object(nil) with key 'y'", nil},
		{"nil field", "function F(a)\n  return a.x.y.z\nend", "line 2: attempt to index a non-table object(nil) with key 'z'", nil},
		{"arithmetic", "function F(a)\n\n  return a.x + 1\nend", "line 3: cannot perform add operation between table and number", nil},
		{"concatenation", "function F(a)\n  return 'x' .. nil\nend", "line 2: attempt to concatenate a nil value", nil},
		{"own error", "function F(a)\n  error('no replicas')\nend", "line 2: no replicas", nil},
		{"error of a table", "function F(a)\n  error({})\nend", "", nil},
		{"NaN", "function F(a) return 0/0 end", "result 1: a number is infinite or not a number", nil},
		{"infinite", "function F(a) return {x = 1/0} end", "result 1: x: a number is infinite or not a number", nil},
		{"function", "function F(a) return {x = {F}} end", "result 1: x: [1]: a function is no value for an object", nil},
		{"bytes", `function F(a) return "\255" end`, "result 1: a string is not UTF-8", nil},
		{"holes", "function F(a) return {1, nil, 3} end", "result 1: a list has holes, or a table has both numbers and names as keys", nil},
		{"mixed", "function F(a) return {1, x = 3} end", "result 1: a list has holes, or a table has both numbers and names as keys", nil},
		{"steps", "function F(a)\n  while true do end\nend", "line 2: the script takes too many steps", ErrSteps},
		{"memory", "function F(a)\n  return ('x'):rep(1e8)\nend", "line 2: the script takes too much memory", ErrMemory},
		{"nested", "function F(a)\n  return " + strings.Repeat("(-", 300) + "1" + strings.Repeat(")", 300) + "\nend", "line 2: nested deeper than 200", nil},
		{"long", "--" + strings.Repeat("x", 200<<10), "the script is longer than 131072 bytes", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, err := s.Compile(t.Context(), c.source, "F")
			if err == nil {
				_, err = s.Call(t.Context(), script, map[string]any{"x": map[string]any{}})
			}
			if err == nil || c.want != "" && err.Error() != c.want || c.cause != nil && !errors.Is(err, c.cause) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestLargeValues(t *testing.T) {
	s := New(DefaultLimits(), nil)
	large := strings.Repeat("é", 1<<19)
	got, err := run(t, s, "a.copy = a.s .. 'x' return a", map[string]any{"s": large})
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got[0].(map[string]any); o["s"] != large || o["copy"] != large+"x" {
		t.Fatal("a string of 1 MiB has changed")
	}
	var deep any = int64(1)
	for range 200 {
		deep = map[string]any{"x": deep}
	}
	if _, err := run(t, s, "return a", deep); !errors.Is(err, errDeep) {
		t.Fatalf("deep argument: %v", err)
	}
	if _, err := run(t, s, "return a", map[string]any{"x": math.NaN()}); err == nil {
		t.Fatal("NaN came back")
	}
}

// Calls at once never see each other's environment, and wait for machines.
func TestConcurrentCalls(t *testing.T) {
	s := small()
	script, err := s.Compile(t.Context(), "function F(a) n = (n or 0) + a return n end", "F")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			got, err := s.Call(context.Background(), script, int64(i))
			if err != nil || got[0] != int64(i) {
				t.Errorf("%d: %v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
}

func TestCanceled(t *testing.T) {
	s := New(Limits{Steps: 1 << 60, Bytes: 1 << 30, Time: 50 * time.Millisecond, Machines: 1, Source: 1 << 20}, nil)
	if _, err := run(t, s, "while true do end"); !errors.Is(err, ErrTime) {
		t.Fatalf("got %v", err)
	}
}
