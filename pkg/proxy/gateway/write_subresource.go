package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// knownSubresources are those of the built-in kinds that serveSubresource routes.
var knownSubresources = map[string]bool{"eviction": true, "binding": true, "scale": true, "approval": true, "token": true}

func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, cache.ErrNotFound)
}

// serveSubresource routes what is about an object without being it: eviction,
// binding, scale, and whatever else a member serves.
func (h *Handler) serveSubresource(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	o, err := h.resolve(r.Context(), info, c, cache.Version{})
	if isAbsent(err) && !knownSubresources[info.Subresource] {
		return pathNotFound() // no server has the path, whatever the name
	}
	if err != nil {
		return err
	}
	id, err := h.identityOf(o.res, o.obj)
	if err != nil {
		return err
	}
	body, contentType, err := h.subresourceBody(w, r, info, id)
	if err != nil {
		return err
	}
	rest, ok := afterName(r.URL.EscapedPath(), info)
	if !ok {
		return pathNotFound()
	}
	resp, err := o.send(r.Context(), r, member.Request{
		Method: r.Method, Path: o.path(info, rest), RawQuery: r.URL.RawQuery, Body: body,
	}, contentType, jsonType)
	if err != nil {
		return err
	}
	if resp.Code < 300 && r.Method != http.MethodGet && !isDryRun(r) {
		if err := h.refresh(r, o, id); err != nil {
			return err
		}
	}
	return h.answerObject(w, r, info, c, id, resp)
}

// refresh makes what a subresource did to its object visible, and the identity
// that of the new state: a Scale carries the resourceVersion of its object.
func (h *Handler) refresh(r *http.Request, o *owned, id *identity) error {
	obj, err := h.live(r, o)
	if err != nil {
		if apierrors.IsNotFound(err) {
			h.awaitDeleted(r.Context(), o.c, id)
			return nil
		}
		return notVisible(string(id.cluster), err)
	}
	if obj != nil && obj.UID == id.uid {
		id.servedRV, id.sourceRV = formatRV(obj.RV), formatRV(obj.SourceRV)
	}
	return nil
}

// live reads the object in its cluster, and makes what it read visible.
func (h *Handler) live(r *http.Request, o *owned) (*cache.Object, error) {
	id := &identity{res: o.res, cluster: o.obj.Cluster, namespace: o.obj.Key.Namespace, servedName: o.obj.Key.Name, sourceName: o.obj.SourceName}
	resp, err := o.send(r.Context(), r, member.Request{
		Method: http.MethodGet,
		Path:   memberPath(o.res.GroupVersionResource, o.obj.Key.Namespace, o.obj.SourceName, ""),
	}, "", accept(o.res))
	if err != nil {
		return nil, err
	}
	a, err := h.parseAnswer(resp)
	if err != nil {
		return nil, renameStatus(err, id)
	}
	return h.observe(r.Context(), o.c, id, a)
}

// subresourceBody maps the body of a request on a subresource. A JSON patch is
// made for the subresource's own form and goes as it is.
func (h *Handler) subresourceBody(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, id *identity) ([]byte, string, error) {
	body, err := readBody(r)
	if err != nil || len(body) == 0 {
		return nil, "", err
	}
	contentType := r.Header.Get("Content-Type")
	var doc document
	var complaints []error
	switch t := types.PatchType(mediaTypeOf(r)); {
	case info.Verb == "patch" && t == types.JSONPatchType:
		return body, contentType, nil
	case info.Verb == "patch" && t == types.ApplyYAMLPatchType:
		doc, complaints, err = parseYAML(body)
	case info.Verb == "patch":
		doc, complaints, err = parseJSON(body)
	default:
		contentType = jsonType
		doc, complaints, err = h.decodeObject(r, body, cache.Protobuf)
	}
	if err != nil {
		return nil, "", err
	}
	if err := complain(w, r, complaints); err != nil {
		return nil, "", err
	}
	if err := h.mapSubresource(r, info, id, doc); err != nil {
		return nil, "", err
	}
	if body, err = json.Marshal(doc); err != nil {
		return nil, "", fmt.Errorf("encoding %s: %w", info.Subresource, err)
	}
	return body, contentType, nil
}

// mapSubresource puts the names and versions of the cluster into a body.
func (h *Handler) mapSubresource(r *http.Request, info *request.RequestInfo, id *identity, doc document) error {
	meta := child(doc, "metadata")
	if meta != nil {
		if err := id.metadataToSource(meta); err != nil {
			return err
		}
	}
	switch {
	case info.Resource == "pods" && info.Subresource == "eviction":
		return id.evict(doc)
	case info.Resource == "pods" && info.Subresource == "binding":
		return h.bind(r, id, doc)
	}
	return nil
}

// evict makes an eviction hit only the Pod that the name was resolved to.
func (id *identity) evict(doc document) error {
	options := ensureChild(doc, "deleteOptions")
	preconditions := ensureChild(options, "preconditions")
	if uid := text(preconditions, "uid"); uid != "" && types.UID(uid) != id.uid {
		return id.conflict(uidMismatch(types.UID(uid), id.uid))
	}
	preconditions["uid"] = string(id.uid)
	return id.translateRV(preconditions)
}

// bind names the node of a binding as the Pod's cluster does. The UID makes
// the member refuse another Pod of the name.
func (h *Handler) bind(r *http.Request, id *identity, doc document) error {
	meta, err := metadataOf(doc)
	if err != nil {
		return err
	}
	meta["uid"] = string(id.uid)
	target := child(doc, "target")
	name := text(target, "name")
	if name == "" {
		return nil
	}
	node, err := h.nodeNamed(r.Context(), name)
	if err != nil {
		return err
	}
	if node == nil {
		return nil // the member decides about a node that nobody knows
	}
	if node.Cluster != id.cluster {
		return badRequest("node %q is in cluster %q, the pod in cluster %q", name, node.Cluster, id.cluster)
	}
	target["name"] = node.SourceName
	return nil
}
