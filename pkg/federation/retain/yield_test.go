package retain

import (
	"encoding/json"
	"reflect"
	"testing"
)

func parse(t *testing.T, s string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestYield(t *testing.T) {
	for _, c := range []struct{ name, desired, retained, observed, ours, want string }{
		{"nothing retained", `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, `{"spec":{"a":2,"b":3}}`, `{"f:spec":{"f:a":{}}}`, `{"spec":{"a":1}}`},
		{"the member's value", `{"spec":{"a":1,"n":3}}`, `{"spec":{"a":1,"n":5}}`, `{"spec":{"a":1,"n":5}}`, `{"f:spec":{"f:a":{}}}`, `{"spec":{"a":1}}`},
		{"claimed already", `{"spec":{"n":3}}`, `{"spec":{"n":5}}`, `{"spec":{"n":5}}`, `{"f:spec":{"f:n":{}}}`, `{"spec":{"n":5}}`},
		{"a value of neither", `{"spec":{"n":3}}`, `{"spec":{"n":4}}`, `{"spec":{"n":5}}`, `{}`, `{"spec":{"n":4}}`},
		{"taken over as a whole", `{"spec":{}}`, `{"spec":{"t":{"x":{"y":1}}}}`, `{"spec":{"t":{"x":{"y":1}}}}`, `{}`, `{"spec":{}}`},
		{"taken over in part", `{"spec":{}}`, `{"spec":{"t":{"x":1,"y":2}}}`, `{"spec":{"t":{"x":1,"y":3}}}`, `{}`, `{"spec":{"t":{"y":2}}}`},
		{"a list of the member", `{"spec":{"l":[1]}}`, `{"spec":{"l":[1,2]}}`, `{"spec":{"l":[1,2]}}`, `{"f:spec":{}}`, `{"spec":{}}`},
		{"a list that is ours in part", `{"spec":{"l":[1]}}`, `{"spec":{"l":[1,2]}}`, `{"spec":{"l":[1,2]}}`, `{"f:spec":{"f:l":{"v:1":{}}}}`, `{"spec":{"l":[1,2]}}`},
		{"dropped by the script", `{"spec":{"a":1,"b":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":9}}`, `{}`, `{"spec":{"a":1}}`},
		{"a foreign label", `{"metadata":{"labels":{"app":"x"}}}`, `{"metadata":{"labels":{"app":"x","phase":"run"}}}`, `{"metadata":{"labels":{"app":"x","phase":"run"}}}`, `{"f:metadata":{"f:labels":{"f:app":{}}}}`, `{"metadata":{"labels":{"app":"x"}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Yield(parse(t, c.desired), parse(t, c.retained), parse(t, c.observed), parse(t, c.ours))
			if want := parse(t, c.want); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			// What comes of it is final: applied, it yields itself.
			again := Yield(got, got, parse(t, c.observed), parse(t, c.ours))
			if !reflect.DeepEqual(again, got) {
				t.Fatalf("again: %v", again)
			}
		})
	}
}
