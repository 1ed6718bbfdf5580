package gateway

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// write routes an update, a patch, a deletion or a subresource to the owner.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, _ cache.Collection) {
	h.fail(w, r, info, apierrors.NewMethodNotSupported(groupResource(info), info.Verb))
}

// create routes a new object to a cluster.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, _ cache.Collection) {
	h.fail(w, r, info, apierrors.NewMethodNotSupported(groupResource(info), info.Verb))
}

// stream routes log, exec, attach, portforward and proxy to the owner.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, _ cache.Collection) {
	h.fail(w, r, info, apierrors.NewMethodNotSupported(groupResource(info), info.Verb))
}

// fanout asks every member for a kind that is not cached.
func (h *Handler) fanout(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	h.fail(w, r, info, pathNotFound())
}
