package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

func TestDecideUnmanaged(t *testing.T) {
	get := request.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "apps", Resource: "daemonsets", Namespace: "d", Name: "x"}
	list := get
	list.Verb, list.Name = "list", ""
	scale := get
	scale.Subresource = "scale"
	status := get
	status.Subresource = "status"
	verb := func(v string) request.RequestInfo { i := get; i.Verb = v; return i }
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
		{name: "another patch", info: patch, contentType: "application/merge-patch+json", want: Hint},
		{name: "delete", info: verb("delete"), want: Hint},
		{name: "update", info: verb("update"), want: Hint},
		{name: "deletecollection", info: verb("deletecollection")},
		{name: "loopback delete", info: verb("delete"), loopback: true},
		{name: "loopback does not", info: get, loopback: true},
		{name: "scale does not, but the 404 tells", info: scale, want: Hint},
		{name: "status is for controllers", info: status},
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

// A write of what only a member has stays a 404, in the client's encoding, and
// says what can be done.
func TestHint(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "delete", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Namespace: "d", Name: "x"}
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "x")
	tests := []struct {
		name   string
		answer error
		member int
		accept string
		hinted bool
	}{
		{name: "only a member has it", answer: notFound, member: 200, accept: "application/json", hinted: true},
		{name: "in protobuf", answer: notFound, member: 200, accept: "application/vnd.kubernetes.protobuf", hinted: true},
		{name: "nobody has it", answer: notFound, member: 404, accept: "application/json"},
		{name: "no answer", answer: notFound, member: 503, accept: "application/json"},
		{name: "forbidden", answer: apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "x", nil), member: 200, accept: "application/json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			router := &Router{Kinds: NewKinds(DefaultClasses()), Gateway: gatewayFunc(func(w http.ResponseWriter, r *http.Request) {
				asked, _ := request.RequestInfoFrom(r.Context())
				if asked.Verb != "get" || asked.Name != "x" || asked.Subresource != "" || r.Method != http.MethodGet || r.URL.RawQuery != "" {
					t.Errorf("asked the members for %+v with %q", asked, r.URL.RawQuery)
				}
				w.Header().Set(ClusterHeader, "m1")
				w.WriteHeader(tt.member)
			})}
			next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				responsewriters.ErrorNegotiated(tt.answer, legacyscheme.Codecs, schema.GroupVersion{Group: "apps", Version: "v1"}, w, r)
			})
			r := httptest.NewRequest(http.MethodDelete, "/apis/apps/v1/namespaces/d/deployments/x?propagationPolicy=Orphan", http.NoBody)
			r.Header.Set("Accept", tt.accept)
			answer := httptest.NewRecorder()
			router.Wrap(next).ServeHTTP(answer, r.WithContext(request.WithRequestInfo(r.Context(), info)))
			object, _ := DecodeObject(answer.Body.Bytes())
			status, ok := object.(*metav1.Status)
			if !ok {
				t.Fatalf("answered %d %q", answer.Code, answer.Body)
			}
			want := tt.answer.(apierrors.APIStatus).Status()
			hint := strings.TrimPrefix(status.Message, want.Message)
			if hinted := strings.Contains(hint, "adopt --cluster m1 -n d deployment/x"); hinted != tt.hinted || !hinted && hint != "" {
				t.Errorf("says %q", status.Message)
			}
			if status.Reason != want.Reason || answer.Code != int(want.Code) || status.Details.Name != "x" || answer.Header().Get("Content-Type") != tt.accept {
				t.Errorf("answered %d %+v as %s", answer.Code, status, answer.Header().Get("Content-Type"))
			}
		})
	}
}
