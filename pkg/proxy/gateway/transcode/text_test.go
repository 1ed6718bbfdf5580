package transcode

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// TestPlainSet: what is taken as it is, is what encoding/json would make of it;
// the usual field sets are.
func TestPlainSet(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true,
		`{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`: true,
		`{"k:{\"ip\":\"10.0.0.1\"}":{".":{}},"v:\\":{}}`:  true,
		`{"f:a":{}} `:        false,
		`{"f:a": {}}`:        false,
		`{"f:a":{},}`:        false,
		`{"f:a":{}}{}`:       false,
		`{"f:a":{}`:          false,
		`{"f:a"}`:            false,
		`{,}`:                false,
		`{"f:a":{}"f:b":{}}`: false,
		`{"f:a":1}`:          false,
		`{"f:<":{}}`:         false,
		"{\"f:\xff\":{}}":    false,
		`{"f:\n":{}}`:        false,
		`{"f:a\":{}}`:        false,
		``:                   false,
		`}`:                  false,
	} {
		if got := plainSet([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	parts := []string{"{", "}", `"f:a"`, ":", ",", `\"`, " ", "1", "é", `"k:{\"a\":1}":{}`, `{"b":{}}`}
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for range rapid.IntRange(0, 12).Draw(t, "parts") {
			text += rapid.SampledFrom(parts).Draw(t, "part")
		}
		if !plainSet([]byte(text)) {
			return
		}
		if want, err := json.Marshal(json.RawMessage(text)); err != nil || string(want) != text {
			t.Fatalf("%q is taken as it is, not as %q: %v", text, want, err)
		}
	})
}
