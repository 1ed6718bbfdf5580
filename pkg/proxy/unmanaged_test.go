package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

func TestDecideUnmanaged(t *testing.T) {
	get := request.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "apps", Resource: "daemonsets", Namespace: "d", Name: "x"}
	list := get
	list.Verb, list.Name = "list", ""
	scale := get
	scale.Subresource = "scale"
	config := get
	config.APIGroup, config.Resource = "", "configmaps"
	creation, patch := list, get
	creation.Verb, patch.Verb = "create", "patch"
	tests := []struct {
		name                 string
		info                 request.RequestInfo
		selector             string
		command, contentType string
		loopback             bool
		want                 Unmanaged
	}{
		{name: "get falls through", info: get, want: IfAbsent},
		{name: "get of an apply does not", info: get, command: "kubectl apply"},
		{name: "get of a get does", info: get, command: "kubectl get", want: IfAbsent},
		{name: "creation", info: creation, want: Beside},
		{name: "server-side apply", info: patch, contentType: "application/apply-patch+yaml", want: Beside},
		{name: "another patch", info: patch, contentType: "application/merge-patch+json"},
		{name: "loopback does not", info: get, loopback: true},
		{name: "subresource does not", info: scale},
		{name: "configuration does not", info: config},
		{name: "plain list", info: list},
		{name: "list of one cluster", info: list, selector: "isthmus.dev/cluster=m1", want: Instead},
		{name: "list of some clusters", info: list, selector: "app=x,isthmus.dev/cluster in (m1,m2)", want: Instead},
		{name: "list of any cluster", info: list, selector: "isthmus.dev/cluster", want: Instead},
		{name: "templates have no cluster label", info: list, selector: "!isthmus.dev/cluster"},
		{name: "not in a cluster matches templates", info: list, selector: "isthmus.dev/cluster!=m1"},
		{name: "malformed selector", info: list, selector: "isthmus.dev/cluster in ("},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/?"+url.Values{"labelSelector": {tt.selector}}.Encode(), http.NoBody)
			r.Header.Set("Kubectl-Command", tt.command)
			r.Header.Set("Content-Type", tt.contentType)
			got := DecideUnmanaged(&tt.info, r, tt.loopback)
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

type gatewayFunc func(w http.ResponseWriter, r *http.Request)

func (f gatewayFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }
func (f gatewayFunc) ServeClusterProxy(http.ResponseWriter, *http.Request, string, string) {
}

func TestFallThrough(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "apps", Resource: "deployments", Namespace: "d", Name: "x"}
	tests := []struct {
		name            string
		control, member int
		want            string
		wantCode        int
	}{
		{name: "the template is there", control: 200, member: 200, want: "template", wantCode: 200},
		{name: "only a member has it", control: 404, member: 200, want: "member", wantCode: 200},
		{name: "nobody has it", control: 404, member: 404, want: "template", wantCode: 404},
		{name: "a member is unreachable", control: 404, member: 503, want: "template", wantCode: 404},
		{name: "forbidden stays forbidden", control: 403, member: 200, want: "template", wantCode: 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			router := &Router{Kinds: NewKinds(DefaultClasses()), Gateway: gatewayFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(UnmanagedHeader) == "" {
					t.Error("the gateway was not told that unmanaged objects are wanted")
				}
				w.WriteHeader(tt.member)
				_, _ = w.Write([]byte("member"))
			})}
			next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(UnmanagedHeader) != "" {
					t.Error("a client's header reached the control plane")
				}
				w.Header().Set("X-From", "template")
				w.WriteHeader(tt.control)
				_, _ = w.Write([]byte("template"))
			})
			r := httptest.NewRequest(http.MethodGet, "/apis/apps/v1/namespaces/d/deployments/x", http.NoBody)
			r.Header.Set(UnmanagedHeader, "forged")
			answer := httptest.NewRecorder()
			router.Wrap(next).ServeHTTP(answer, r.WithContext(request.WithRequestInfo(r.Context(), info)))
			if answer.Code != tt.wantCode || answer.Body.String() != tt.want {
				t.Errorf("got %d %q, want %d %q", answer.Code, answer.Body, tt.wantCode, tt.want)
			}
			if tt.want == "template" && answer.Header().Get("X-From") != "template" {
				t.Error("a header of the control plane's answer is lost")
			}
		})
	}
}

func TestCreationWarns(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: "apps", Resource: "deployments", Namespace: "d"}
	const body = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x","namespace":"d"}}`
	for _, held := range []bool{false, true} {
		router := &Router{Kinds: NewKinds(DefaultClasses()), Gateway: gatewayFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, _ := request.RequestInfoFrom(r.Context())
			if asked.Verb != "get" || asked.Name != "x" || r.Method != http.MethodGet {
				t.Errorf("asked the members for %+v", asked)
			}
			w.Header().Set(ClusterHeader, "m1")
			if !held {
				w.WriteHeader(http.StatusNotFound)
			}
		})}
		var recorded warnings
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
				t.Errorf("the control plane reads %q (%v)", got, err)
			}
			w.WriteHeader(http.StatusCreated)
		})
		r := httptest.NewRequest(http.MethodPost, "/apis/apps/v1/namespaces/d/deployments", strings.NewReader(body))
		ctx := warning.WithWarningRecorder(request.WithRequestInfo(r.Context(), info), &recorded)
		answer := httptest.NewRecorder()
		router.Wrap(next).ServeHTTP(answer, r.WithContext(ctx))
		if answer.Code != http.StatusCreated {
			t.Errorf("answered %d", answer.Code)
		}
		if warned := len(recorded) == 1 && strings.Contains(recorded[0], `"m1"`); warned != held {
			t.Errorf("held %v: warnings %q", held, recorded)
		}
	}
}

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }
