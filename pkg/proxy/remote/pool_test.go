package remote

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// What only reads goes to the next gateway where the first may not be the leader
// any more; a write does not, and the last answer is the answer.
func TestReadsGoToWhoeverMayAnswer(t *testing.T) {
	refusal := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(proxy.NotLeadingHeader, "true")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }
	plain := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	for _, c := range []struct {
		name          string
		first, second http.HandlerFunc
		verb          string
		code          int
	}{
		{"a read", refusal, answer, "get", http.StatusOK},
		{"a write", refusal, answer, "update", http.StatusServiceUnavailable},
		{"a refusal by the member", plain, answer, "get", http.StatusServiceUnavailable},
		{"refused by both", refusal, refusal, "list", http.StatusServiceUnavailable},
	} {
		var addresses []string
		for _, h := range []http.HandlerFunc{c.first, c.second} {
			server := httptest.NewServer(h)
			defer server.Close()
			addresses = append(addresses, strings.TrimPrefix(server.URL, "http://"))
		}
		p := newPool(addresses, func() *http.Transport { return http.DefaultTransport.(*http.Transport).Clone() })
		r := httptest.NewRequest(http.MethodGet, "http://gateway/api/v1/pods", http.NoBody)
		r.RequestURI = ""
		r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: c.verb, IsResourceRequest: true}))
		resp, err := p.RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		if resp.StatusCode != c.code {
			t.Errorf("%s: %d, want %d", c.name, resp.StatusCode, c.code)
		}
	}
}
