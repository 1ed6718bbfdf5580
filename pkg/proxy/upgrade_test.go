package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestActsAsCreate(t *testing.T) {
	for _, c := range []struct {
		resource, subresource, verb string
		upgrade                     bool
		to                          Target
		want                        bool
	}{
		{resource: "pods", subresource: "exec", verb: "get", upgrade: true, to: ToGateway, want: true},
		{resource: "pods", subresource: "attach", verb: "get", to: ToGateway, want: true},
		{resource: "pods", subresource: "portforward", verb: "get", upgrade: true, to: ToGateway, want: true},
		{resource: "pods", subresource: "exec", verb: "create", upgrade: true, to: ToGateway},
		{resource: "pods", subresource: "log", verb: "get", to: ToGateway},
		{resource: "pods", subresource: "proxy", verb: "get", upgrade: true, to: ToGateway},
		{resource: "pods", verb: "watch", upgrade: true, to: ToGateway},
		{resource: "clusters", subresource: "proxy", verb: "get", to: ToCluster},
		{resource: "clusters", subresource: "proxy", verb: "get", upgrade: true, to: ToCluster, want: true},
		{resource: "clusters", subresource: "proxy", verb: "create", upgrade: true, to: ToCluster},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if c.upgrade {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		info := &request.RequestInfo{IsResourceRequest: true, Verb: c.verb, Resource: c.resource, Subresource: c.subresource}
		if got := actsAsCreate(info, r, c.to); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The second question is about create on the same object; no answer is no.
func TestPermitted(t *testing.T) {
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "d", Name: "p"}
	ctx := request.WithRequestInfo(request.WithUser(t.Context(), &user.DefaultInfo{Name: "bob"}), info)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/d/pods/p/exec", nil).WithContext(ctx)
	for name, c := range map[string]struct {
		decision authorizer.Decision
		err      error
		code     int
	}{
		"allowed":    {decision: authorizer.DecisionAllow, code: http.StatusOK},
		"no opinion": {decision: authorizer.DecisionNoOpinion, code: http.StatusForbidden},
		"denied":     {decision: authorizer.DecisionDeny, code: http.StatusForbidden},
		"broken":     {decision: authorizer.DecisionNoOpinion, err: errors.New("no"), code: http.StatusInternalServerError},
	} {
		asked := 0
		rt := &Router{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked++
			if a.GetVerb() != "create" || a.GetSubresource() != "exec" || a.GetNamespace() != "d" || a.GetName() != "p" || a.GetUser().GetName() != "bob" {
				t.Errorf("%s: asked about %+v", name, a)
			}
			return c.decision, "", c.err
		})}
		w := httptest.NewRecorder()
		if got := rt.permitted(w, r, info, ToGateway); got != (c.code == http.StatusOK) || w.Code != c.code || asked != 1 {
			t.Errorf("%s: %v, code %d, asked %d times", name, got, w.Code, asked)
		}
	}
}
