package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// The way of a write:
//
//	body -> document -> name resolved to (cluster, name and UID there)
//	     -> mapped back (identity.toSource) -> member, once
//	     -> answer: object observed by the cache -> as served -> client

// write routes an update, a patch, a deletion or a subresource to the owner.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveWrite(w, r, info, c); err != nil {
		h.refuse(w, r, info, err)
	}
}

// wholeObject are the subresources whose body and answer are the object.
var wholeObject = map[string]bool{
	"": true, "status": true, "ephemeralcontainers": true, "resize": true,
}

func (h *Handler) serveWrite(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	switch {
	case info.Verb == "deletecollection" && info.Subresource == "":
		return h.deleteCollection(w, r, info, c)
	case info.Name == "":
		return apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
	case info.Subresource != "" && info.Verb == "get" && wholeObject[info.Subresource]:
		return h.serveGet(w, r, info, c)
	case !wholeObject[info.Subresource]:
		return h.serveSubresource(w, r, info, c)
	}
	switch info.Verb {
	case "update":
		return h.update(w, r, info, c)
	case "patch":
		return h.patch(w, r, info, c)
	case "delete":
		if info.Subresource == "" {
			return h.delete(w, r, info, c)
		}
	}
	return apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
}

// update replaces an object.
func (h *Handler) update(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	doc, complaints, err := h.decodeObject(r, body, c.Resource().Encoding)
	if err != nil {
		return err
	}
	if err := complain(w, r, complaints); err != nil {
		return err
	}
	if err := checkName(doc, info); err != nil {
		return err
	}
	o, err := h.resolve(r.Context(), info, c, momentOf(doc))
	if err != nil {
		return err
	}
	id, err := h.identityOf(o.res, o.obj)
	if err != nil {
		return err
	}
	if err := h.toSource(r.Context(), info, id, doc); err != nil {
		return err
	}
	resp, err := h.put(r.Context(), r, info, o, doc)
	if err != nil {
		return err
	}
	return h.answerObject(w, r, info, c, id, resp)
}

// toSource maps a written document back, with what it says about other objects.
func (h *Handler) toSource(ctx context.Context, info *request.RequestInfo, id *identity, doc document) error {
	if err := h.adopt(ctx, info, id, doc); err != nil {
		return err
	}
	return id.toSource(doc)
}

// put sends a whole object, in JSON: the member's strict decoding then sees
// every field that the client sent.
func (h *Handler) put(ctx context.Context, r *http.Request, info *request.RequestInfo, o *owned, doc document) (*member.Response, error) {
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", o.res.Kind, err)
	}
	return h.whenRoom(ctx, o, func(ctx context.Context) (*member.Response, error) {
		return o.send(ctx, r, member.Request{
			Method: http.MethodPut, Path: o.path(info, info.Subresource), RawQuery: r.URL.RawQuery, Body: body,
		}, jsonType, accept(o.res))
	})
}

// checkName refuses a body that is about another object than the URL.
func checkName(doc document, info *request.RequestInfo) error {
	meta, err := metadataOf(doc)
	if err != nil {
		return err
	}
	if name := text(meta, "name"); name != "" && name != info.Name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", name, info.Name)
	}
	if ns := text(meta, "namespace"); ns != "" && info.Namespace != "" && ns != info.Namespace {
		return badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// momentOf is the moment at which a document's resourceVersion can be judged:
// another replica may have handed out one that this one has yet to see.
func momentOf(doc document) cache.Version {
	rv, err := strconv.ParseUint(text(child(doc, "metadata"), "resourceVersion"), 10, 64)
	if err != nil || rv == 0 {
		return cache.Version{}
	}
	return cache.Version{Match: cache.NotOlderThan, RV: rv}
}
