package member

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// codes records what a writer is told, as an audit log or a time limit sees it.
type codes struct {
	*httptest.ResponseRecorder
	seen []int
}

func (c *codes) WriteHeader(code int) {
	c.seen = append(c.seen, code)
	c.ResponseRecorder.WriteHeader(code)
}

// Interim answers of a member neither reach the client nor take away what this
// endpoint has to say.
func TestInterimAnswersEndHere(t *testing.T) {
	_, config := newMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</evil>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "body")
	})
	tr := newTransport(t, config)
	w := &codes{ResponseRecorder: httptest.NewRecorder()}
	w.Header().Set("X-Isthmus-Cluster", "m1")
	tr.Stream(w, httptest.NewRequest(http.MethodGet, "/log", http.NoBody), Forward{Path: "/log", Fail: func(_ http.ResponseWriter, _ *http.Request, err error) {
		t.Errorf("failed: %v", err)
	}})
	if len(w.seen) != 1 || w.seen[0] != http.StatusTeapot || w.Body.String() != "body" {
		t.Errorf("the answers %v with %q", w.seen, w.Body)
	}
	if w.Header().Get("X-Isthmus-Cluster") != "m1" || w.Header().Get("Link") != "" {
		t.Errorf("headers %v", w.Header())
	}
}

// A member speaks neither for this endpoint nor to the browsers of its clients.
func TestAnswerHeadersEndHere(t *testing.T) {
	_, config := newMember(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Isthmus-Cluster", "m2")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Www-Authenticate", "Basic")
		h.Set("Audit-Id", "forged")
		h.Set("Warning", `299 - "of the member"`)
	})
	tr := newTransport(t, config)
	w := httptest.NewRecorder()
	w.Header().Set("X-Isthmus-Cluster", "m1")
	w.Header().Set("Audit-Id", "ours")
	tr.Stream(w, httptest.NewRequest(http.MethodGet, "/log", http.NoBody), Forward{Path: "/log", Fail: func(_ http.ResponseWriter, _ *http.Request, err error) {
		t.Errorf("failed: %v", err)
	}})
	for key, want := range map[string]string{"X-Isthmus-Cluster": "m1", "Audit-Id": "ours", "Warning": `299 - "of the member"`} {
		if got := w.Header().Values(key); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q alone", key, got, want)
		}
	}
	for _, key := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Www-Authenticate"} {
		if got := w.Header().Values(key); len(got) > 0 {
			t.Errorf("%s: %q has passed", key, got)
		}
	}
}
