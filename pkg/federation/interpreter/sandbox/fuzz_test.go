package sandbox

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func tight() *Sandbox {
	return New(Limits{Steps: 20_000, Bytes: 1 << 20, Time: 5 * time.Second, Machines: 2, Source: 8 << 10}, nil)
}

// FuzzScript: whatever the source, there is an answer or an error, soon.
func FuzzScript(f *testing.F) {
	for _, body := range []string{
		"return a", "a.x = {} return a", "local t = {} for i = 1, 10 do t[i] = i .. 'x' end return t",
		"return ('x'):rep(10):gsub('x*', '%0')", "return string.format('%5.2f%%', 1)", "while true do end",
		"local function f(...) return select('#', ...), ... end return f(1, nil, 3)", "return setmetatable({}, {__index = function() error('x') end}).y",
		"goto e do local x = 1 end ::e:: return {n = -0/1}", "return pcall(error, {1})", "for k, v in pairs(a) do a[k] = nil end return a",
	} {
		f.Add("function F(a)\n" + body + "\nend")
	}
	s := tight()
	argument := map[string]any{"n": int64(1), "l": []any{"a", 1.5, true}, "m": map[string]any{}}
	f.Fuzz(func(t *testing.T, source string) {
		script, err := s.Compile(t.Context(), source, "F")
		if err != nil {
			return
		}
		out, err := s.Call(t.Context(), script, argument)
		if err != nil {
			return
		}
		if _, err := json.Marshal(out); err != nil {
			t.Fatalf("a result that is no JSON: %v", err)
		}
	})
}

// FuzzValue: what goes in comes out, if it comes out.
func FuzzValue(f *testing.F) {
	for _, v := range []string{`{}`, `[]`, `null`, `{"a":[{},[],null,1,1.5,"x",true]}`, `[[[[]]]]`, `9007199254740993`, `-0.0`, `{"":{"1":2}}`, `"é\u0000"`} {
		f.Add(v)
	}
	s := tight()
	script, err := s.Compile(f.Context(), "function F(a) return a end", "F")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var in any
		if json.Unmarshal([]byte(text), &in) != nil {
			return
		}
		out, err := s.Call(t.Context(), script, in)
		if err != nil {
			return // nulls in lists, too deep, too large
		}
		if got, want := out[0], dropNulls(in); !reflect.DeepEqual(got, want) {
			t.Fatalf("in %#v, out %#v", want, got)
		}
	})
}

// dropNulls: a field that is null is no field.
func dropNulls(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if e != nil {
				out[k] = dropNulls(e)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, dropNulls(e))
		}
		return out
	}
	return v
}
