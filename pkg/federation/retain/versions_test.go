package retain

import (
	"reflect"
	"testing"
)

func TestAddVersions(t *testing.T) {
	for _, c := range []struct {
		name, desired, observed, want string
		kept                          []string
	}{
		{"the same", `{"spec":{"versions":[{"name":"v1","storage":true}]}}`, `{"spec":{"versions":[{"name":"v1","storage":true,"served":false}]}}`, `{"spec":{"versions":[{"name":"v1","storage":true}]}}`, nil},
		{
			"the member has an older one that it stores", `{"spec":{"versions":[{"name":"v2","storage":true,"served":true}]}}`,
			`{"spec":{"versions":[{"name":"v1","storage":true,"served":true,"schema":{"a":1}},{"name":"v2","storage":false}]}}`,
			`{"spec":{"versions":[{"name":"v2","storage":true,"served":true},{"name":"v1","storage":false,"served":true,"schema":{"a":1}}]}}`,
			[]string{"v1"},
		},
		{"the template has more", `{"spec":{"versions":[{"name":"v1","storage":true},{"name":"v2"}]}}`, `{"spec":{"versions":[{"name":"v1","storage":true}]}}`, `{"spec":{"versions":[{"name":"v1","storage":true},{"name":"v2"}]}}`, nil},
		{"nothing is said", `{"spec":{}}`, `{"spec":{"versions":[{"name":"v1"}]}}`, `{"spec":{}}`, nil},
		{"odd", `{"spec":{"versions":[{"name":"v1"}]}}`, `{"spec":{"versions":["x",{},{"name":7}]}}`, `{"spec":{"versions":[{"name":"v1"}]}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, observed := parse(t, c.desired), parse(t, c.observed)
			if kept := AddVersions(got, observed); !reflect.DeepEqual(kept, c.kept) || !reflect.DeepEqual(got, parse(t, c.want)) {
				t.Fatalf("got %v, kept %v", got, kept)
			}
			if !reflect.DeepEqual(observed, parse(t, c.observed)) {
				t.Fatal("what was observed has changed")
			}
		})
	}
}
