package drift

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func object(t testing.TB, doc string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBetween(t *testing.T) {
	const wanted = `
metadata: {name: web, resourceVersion: "5", labels: {app: web}, annotations: {isthmus.dev/epoch: "3", example.com/a: b}}
spec:
  replicas: 5
  empty: {}
  template: {spec: {containers: [{name: a, image: i1, ports: [{containerPort: 80}], resources: {limits: {cpu: "1000m"}}}, {name: b, image: i2}], args: [x, "y"]}}
`
	for name, c := range map[string]struct{ have, want string }{
		"equal, more and older": {`
metadata: {name: web, resourceVersion: "9", uid: u, labels: {app: web, more: x}, annotations: {isthmus.dev/epoch: "2", example.com/a: b}}
spec:
  replicas: 5
  paused: true
  template: {spec: {containers: [{name: z, image: side}, {name: b, image: i2}, {name: a, image: i1, ports: [{containerPort: 80, protocol: TCP}], resources: {limits: {cpu: "1"}}}], args: [x, "y"]}}
status: {replicas: 1}`, ""},
		"changed": {
			`
metadata: {labels: {app: other}, annotations: {example.com/a: b}}
spec:
  replicas: 3
  template: {spec: {containers: [{name: a, image: i1, resources: {limits: {cpu: "2"}}}], args: ["y", x]}}`,
			`metadata.labels.app is "other", wanted "web"; spec.replicas is 3, wanted 5; spec.template.spec.args[0] is "y", wanted "x"; spec.template.spec.args[1] is "x", wanted "y"; spec.template.spec.containers[a].ports is missing; and 2 more`,
		},
		"shorter list": {
			`
metadata: {labels: {app: web}, annotations: {example.com/a: c}}
spec: {replicas: 5, template: {spec: {containers: [{name: b, image: i2}, {name: a, image: i1, ports: [{containerPort: 80}], resources: {limits: {cpu: "1"}}}], args: [x]}}}`,
			`metadata.annotations[example.com/a] is "c", wanted "b"; spec.template.spec.args is ["x"], wanted ["x","y"]`,
		},
	} {
		if got := Describe(Between(object(t, wanted), object(t, c.have))); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	all := Redact(Between(map[string]any{"data": map[string]any{"k": "hidden1"}}, map[string]any{"data": map[string]any{"k": "hidden2"}}))
	if got := Describe(all); !strings.Contains(got, "data.k") || strings.Contains(got, "hidden") {
		t.Errorf("a Secret's difference is told as %q", got)
	}
}

// What was read back from JSON does not differ from itself, whatever is added.
func TestNothingDiffersFromItself(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) any { return draw(t, 3) })
	rapid.Check(t, func(t *rapid.T) {
		wanted := rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), value).Draw(t, "wanted")
		raw, err := json.Marshal(wanted)
		if err != nil {
			t.Fatal(err)
		}
		var have map[string]any
		if err := json.Unmarshal(raw, &have); err != nil {
			t.Fatal(err)
		}
		have["ADDED"] = true
		if got := Between(wanted, have); len(got) > 0 {
			t.Fatalf("%v", got)
		}
	})
}

func draw(t *rapid.T, depth int) any {
	if depth == 0 {
		return rapid.OneOf(rapid.Just[any](int64(3)), rapid.Just[any]("x"), rapid.Just[any](nil), rapid.Just[any](true)).Draw(t, "leaf")
	}
	switch rapid.IntRange(0, 2).Draw(t, "shape") {
	case 0:
		out := map[string]any{}
		for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"name", "a", "b"}), 0, 3).Draw(t, "keys") {
			out[k] = draw(t, depth-1)
		}
		return out
	case 1:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			out = append(out, draw(t, depth-1))
		}
		return out
	}
	return draw(t, 0)
}
