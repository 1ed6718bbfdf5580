package gateway

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func (h *Handler) serveGet(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	return badRequest("not served yet")
}
func (h *Handler) serveList(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	return badRequest("not served yet")
}
func (h *Handler) serveWatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	return badRequest("not served yet")
}

// writeServed answers with an object as served, in the form that the client
// negotiated: GET and the answers of writes share it.
func (h *Handler) writeServed(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, code int, o *cache.Object) error {
	return badRequest("not served yet")
}
