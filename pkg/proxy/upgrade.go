package proxy

import (
	"net/http"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/streaming/pkg/httpstream"
)

// asCreate are attributes of a request that does what only a create may.
type asCreate struct{ authorizer.Attributes }

func (asCreate) GetVerb() string { return "create" }

// actsAsCreate says whether a request does more than its verb says. An exec over
// WebSocket is a GET, and kube-apiserver asks for create since v1.35; so does an
// upgrade in the API of a member, which may be one.
func actsAsCreate(info *request.RequestInfo, r *http.Request, to Target) bool {
	if info.Verb == "create" {
		return false
	}
	if to == ToCluster {
		return httpstream.IsUpgradeRequest(r)
	}
	if info.APIGroup != "" || info.Resource != "pods" {
		return false
	}
	switch info.Subresource {
	case "exec", "attach", "portforward":
		return true
	}
	return false
}

// permitted answers the client itself when it refuses, and returns false then.
func (rt *Router) permitted(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, to Target) bool {
	if rt.Authorizer == nil || !actsAsCreate(info, r, to) {
		return true
	}
	attributes, err := filters.GetAuthorizerAttributes(r.Context())
	if err != nil {
		responsewriters.InternalError(w, r, err)
		return false
	}
	attributes = asCreate{attributes}
	decision, reason, err := rt.Authorizer.Authorize(r.Context(), attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return true
	case err != nil:
		responsewriters.InternalError(w, r, err)
	default:
		responsewriters.Forbidden(attributes, w, r, reason, legacyscheme.Codecs)
	}
	return false
}
