package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// send makes one request with a body and reads the Status in the answer.
func (e *endpoint) send(t *testing.T, method, path, contentType, body string) (*http.Response, metav1.Status) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, e.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := e.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status metav1.Status
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &status); err != nil {
		t.Fatalf("%d: %s", resp.StatusCode, b)
	}
	return resp, status
}

// What a member that fails, lies or is gone makes of a write.
func TestWriteToABrokenMember(t *testing.T) {
	const mayHaveRun = "not known whether"
	for name, tc := range map[string]struct {
		handler    http.HandlerFunc
		closed     bool
		unready    bool
		code       int
		retryAfter string
		message    string
		requests   int32
	}{
		"nothing listens":           {closed: true, code: 503, retryAfter: "1"},
		"nothing listens, for long": {closed: true, unready: true, code: 503},
		"dies on the request":       {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, code: 504, message: mayHaveRun, requests: 1},
		"redirects": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, code: 502, message: "redirect", requests: 1},
		"refuses our credentials": {handler: func(w http.ResponseWriter, _ *http.Request) { answerStatus(w, 401, metav1.StatusReasonUnauthorized) }, code: 503, message: "credentials", requests: 1},
		"answers text": {handler: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "upstream\x00 broken", http.StatusBadGateway)
		}, code: 502, requests: 1},
		"answers garbage as success": {handler: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, code: 502, requests: 1},
		"garbage in protobuf": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", protobufType)
			io.WriteString(w, "k8s\x00\xff\xff\xff")
		}, code: 502, requests: 1},
		"answers about another object": {handler: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"other","namespace":"d","uid":"u","resourceVersion":"7"}}`)
		}, code: 502, message: "another object", requests: 1},
		"answers about another namespace": {handler: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"other","uid":"u","resourceVersion":"7"}}`)
		}, code: 502, message: "another object", requests: 1},
		"refuses with Retry-After": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			answerStatus(w, 429, metav1.StatusReasonTooManyRequests)
		}, code: 429, retryAfter: "7", requests: 1},
		"refuses": {handler: func(w http.ResponseWriter, _ *http.Request) { answerStatus(w, 403, metav1.StatusReasonForbidden) }, code: 403, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m1 := newStub(t, func(w http.ResponseWriter, r *http.Request) { tc.handler(w, r) })
			m := m1.member("m1")
			m.Ready = !tc.unready
			if tc.closed {
				m1.Close()
			}
			e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m} })
			e.pods.put(t, "m1", pod("d", "web"), podFields)
			resp, status := e.send(t, http.MethodPatch, "/api/v1/namespaces/d/pods/web", string(types.MergePatchType), `{}`)
			if resp.StatusCode != tc.code || status.Code != int32(tc.code) || status.Kind != "Status" {
				t.Errorf("%d %+v", resp.StatusCode, status)
			}
			if got := resp.Header.Get("Retry-After"); got != tc.retryAfter {
				t.Errorf("Retry-After %q, want %q", got, tc.retryAfter)
			}
			if !strings.Contains(status.Message, tc.message) {
				t.Errorf("message %q", status.Message)
			}
			if n := m1.requests.Load(); n != tc.requests {
				t.Errorf("the member saw %d requests", n)
			}
		})
	}
}

func TestWriteFrozenMember(t *testing.T) {
	thaw := make(chan struct{})
	m1 := newStub(t, func(http.ResponseWriter, *http.Request) { <-thaw })
	defer close(thaw)
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m1.member("m1")} })
	e.pods.put(t, "m1", pod("d", "web"), podFields)
	start := time.Now()
	resp, status := e.send(t, http.MethodDelete, "/api/v1/namespaces/d/pods/web", jsonType, "")
	if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(status.Message, `cluster "m1"`) || resp.Header.Get("Retry-After") != "" {
		t.Errorf("%d %+v", resp.StatusCode, status)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("held the client for %s", d)
	}
}

func TestWriteRefusesBodies(t *testing.T) {
	m1 := newStub(t, func(w http.ResponseWriter, _ *http.Request) { answerStatus(w, 418, "Reached") })
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m1.member("m1")} })
	e.pods.put(t, "m1", pod("d", "web"), podFields)
	const path = "/api/v1/namespaces/d/pods/web"
	for name, tc := range map[string]struct {
		method, query, contentType, body string
		code                             int
	}{
		"too large":          {"PUT", "", jsonType, strings.Repeat(" ", maxBody+1), 413},
		"unknown type":       {"PUT", "", "text/plain", "{}", 415},
		"patch type":         {"PATCH", "", jsonType, "{}", 415},
		"CBOR":               {"PUT", "", "application/cbor", "\xa0", 415},
		"no JSON":            {"PUT", "", jsonType, "{", 400},
		"no object":          {"PUT", "", jsonType, "[]", 400},
		"null":               {"PUT", "", jsonType, "null", 400},
		"no protobuf":        {"PUT", "", protobufType, "k8s\x00\xff", 400},
		"another name":       {"PUT", "", jsonType, `{"metadata":{"name":"x"}}`, 400},
		"another namespace":  {"PUT", "", jsonType, `{"metadata":{"name":"web","namespace":"x"}}`, 400},
		"field twice":        {"PUT", "?fieldValidation=Strict", jsonType, `{"spec":{},"spec":{}}`, 400},
		"YAML":               {"PUT", "", yamlType, "metadata: {name: web}", 418},
		"ordinary":           {"PUT", "", jsonType, `{"metadata":{"name":"web"}}`, 418},
		"no patch":           {"PATCH", "", string(types.JSONPatchType), `{}`, 400},
		"patch fails":        {"PATCH", "", string(types.JSONPatchType), `[{"op":"remove","path":"/nowhere"}]`, 422},
		"patch is no object": {"PATCH", "", string(types.JSONPatchType), `[{"op":"replace","path":"","value":[]}]`, 400},
		"delete options":     {"DELETE", "", jsonType, `{"kind":"Pod","apiVersion":"v1"}`, 400},
		"grace":              {"DELETE", "?gracePeriodSeconds=x", jsonType, "", 400},
		"policy":             {"DELETE", "", jsonType, `{"propagationPolicy":"Wild"}`, 422},
		"wrong verb":         {"POST", "", jsonType, "{}", 405},
	} {
		before := m1.requests.Load()
		resp, status := e.send(t, tc.method, path+tc.query, tc.contentType, tc.body)
		if resp.StatusCode != tc.code {
			t.Errorf("%s: %d %s", name, resp.StatusCode, status.Message)
		}
		if reached := m1.requests.Load() > before; reached != (tc.code == 418) {
			t.Errorf("%s: reached the member: %t", name, reached)
		}
	}
}

// The member's own refusals keep everything but the name.
func TestStatusIsMapped(t *testing.T) {
	m2 := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.Header().Add("Warning", `299 - "careful"`)
		w.WriteHeader(http.StatusConflict)
		json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: 409, Reason: "Conflict", Message: `pods "web" is busy`,
			Details: &metav1.StatusDetails{Name: "web", Kind: "pods", Causes: []metav1.StatusCause{{Field: "x"}}},
		})
	})
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m2.member("m2")} })
	e.putRenamed(t, "m2", "web")
	resp, status := e.send(t, http.MethodPut, "/api/v1/namespaces/d/pods/web.m2", jsonType, `{}`)
	if status.Details == nil || status.Details.Name != "web.m2" || status.Message != `pods "web.m2" is busy` || len(status.Details.Causes) != 1 {
		t.Errorf("%+v", status)
	}
	if got := resp.Header.Values("Warning"); len(got) != 1 || resp.Header.Get(ClusterHeader) != "m2" {
		t.Errorf("headers %v", resp.Header)
	}
}

func TestDeleteCollectionNamesFailures(t *testing.T) {
	m1 := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	})
	m2 := newStub(t, nil)
	m2.Close()
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m1.member("m1"), m2.member("m2")} })
	e.putPods(t, "m1", "d", 3)
	e.putPods(t, "m2", "d", 40)
	resp, status := e.send(t, http.MethodDelete, "/api/v1/namespaces/d/pods", jsonType, "")
	if resp.StatusCode != http.StatusServiceUnavailable || status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "m2" {
		t.Errorf("%d %+v", resp.StatusCode, status)
	}
	if n := m1.requests.Load(); n != 3 {
		t.Errorf("m1 saw %d deletions", n)
	}
	resp, _ = e.send(t, http.MethodDelete, "/api/v1/namespaces/d/pods?labelSelector=isthmus.dev/cluster%3Dm1", jsonType, "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get(ClusterHeader) != "m1" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

func TestNotLoadedIsNotNotFound(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{} })
	resp, _ := e.send(t, http.MethodDelete, "/api/v1/namespaces/d/pods/web", jsonType, "")
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d", resp.StatusCode)
	}
	e.pods.setGaps(cache.Gap{Cluster: "m1", Kind: cache.NotLoaded, Since: time.Now()})
	resp, _ = e.send(t, http.MethodDelete, "/api/v1/namespaces/d/pods/web", jsonType, "")
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a client would think it deleted: %d", resp.StatusCode)
	}
}

func (c *fakeCollection) ObserveDeleted(context.Context, cache.ClusterName, string, string, types.UID) error {
	return errors.New("the fake sees nothing")
}
