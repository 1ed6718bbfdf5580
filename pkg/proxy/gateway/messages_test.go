package gateway

import (
	"strings"
	"testing"
)

// What is wrong with a request is said in kube-apiserver's words.
func TestRefusalsInTheServersWords(t *testing.T) {
	e := newEndpoint(t)
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/api/v1/namespaces/d/pods?resourceVersion=x":  {400, `invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax`},
		"/api/v1/namespaces/d/pods?limit=1&continue=x": {400, "invalid continue token: continue key is not valid: illegal base64 data"},
		"/api/v1/namespaces/d/pods/none/nothing":       {404, "the server could not find the requested resource"},
		"/api/v1/namespaces/d/pods/none/scale":         {404, `pods \"none\" not found`},
		"/api/v1/namespaces/d/pods/none":               {404, `pods \"none\" not found`},
	} {
		if resp, body := e.fetch(t, path, jsonType); resp.StatusCode != want.code || !strings.Contains(string(body), want.text) {
			t.Errorf("%s: %d %s, want %d %s", path, resp.StatusCode, body, want.code, want.text)
		}
	}
}
