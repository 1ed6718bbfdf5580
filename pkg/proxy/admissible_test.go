package proxy

import (
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Admission sees writes and every kind of connect, over WebSocket (GET) too.
func TestAdmissible(t *testing.T) {
	for _, c := range []struct {
		verb, subresource string
		want              bool
	}{
		{"get", "", false},
		{"list", "", false},
		{"watch", "", false},
		{"get", "log", false},
		{"get", "status", false},
		{"create", "", true},
		{"update", "", true},
		{"patch", "status", true},
		{"delete", "", true},
		{"deletecollection", "", true},
		{"get", "exec", true},
		{"create", "exec", true},
		{"get", "attach", true},
		{"get", "portforward", true},
		{"get", "proxy", true},
		{"create", "eviction", true},
	} {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: c.verb, Resource: "pods", Subresource: c.subresource}
		if got := admissible(info); got != c.want {
			t.Errorf("%s pods/%s: %v, want %v", c.verb, c.subresource, got, c.want)
		}
	}
}
