package proxy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Gateway answers requests on member and dual kinds, and direct requests to a
// member. User and RequestInfo are in the request's context.
type Gateway interface {
	http.Handler
	// ServeClusterProxy forwards to path of one member's API.
	ServeClusterProxy(w http.ResponseWriter, r *http.Request, cluster, path string)
}

// Router sends each authorized request to its destination.
type Router struct {
	Kinds   *Kinds
	Gateway Gateway
	// Authorizer is asked once more about a connect that does more than its verb
	// says; nil asks nobody.
	Authorizer authorizer.UnconditionalAuthorizer
	// Admit runs validating admission over a routed write or connect; nil admits all.
	// It answers the client itself when it refuses, and returns false then.
	Admit func(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) (*http.Request, bool)
	// Settler waits for the members after writes of the control plane; nil waits
	// for nobody.
	Settler Settler
}

// Wrap returns a handler that diverts what is not the control plane's from next.
func (rt *Router) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		to := Decide(info, rt.Kinds, IsLoopback(r.Context()))
		r.Header.Del(UnmanagedHeader)
		if to.Target == ToControlPlane {
			if how := DecideUnmanaged(info, r, IsLoopback(r.Context())); how != NotUnmanaged {
				rt.serveUnmanaged(w, r, next, how)
				return
			}
			rt.serveSettling(w, r, next, info)
			return
		}
		audited := annotateAudit(w, r, info)
		defer audited.record() //nolint:contextcheck // the request's own context is in the writer
		w = audited
		if !rt.permitted(w, r, info, to.Target) {
			return
		}
		if to.Target == ToCluster {
			rt.Gateway.ServeClusterProxy(w, r, to.Cluster, to.Path)
			return
		}
		if rt.Admit != nil && admissible(info) {
			admitted, ok := rt.Admit(w, r, info)
			if !ok {
				return
			}
			r = admitted
		}
		if rt.Kinds.Class(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) == Dual {
			rt.serveSettling(w, r, rt.Gateway, info) // it may be a template
			return
		}
		rt.Gateway.ServeHTTP(w, r)
	})
}

// Connects are the subresources that admission knows as CONNECT, whatever the
// verb: an exec over WebSocket is a GET.
var Connects = map[string]bool{"exec": true, "attach": true, "portforward": true, "proxy": true}

// admissible says whether admission has a say in a request.
func admissible(info *request.RequestInfo) bool {
	if Connects[info.Subresource] {
		return true
	}
	switch info.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}
