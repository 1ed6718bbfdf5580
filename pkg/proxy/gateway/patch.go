package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

const (
	// patchAttempts bounds how often a JSON patch is made anew when the
	// object changed under it.
	patchAttempts = 5
	// maxPatchOperations is the limit of a JSON patch, kube-apiserver's.
	maxPatchOperations = 10000
)

// patch changes an object. JSON patches are about the object as served, so
// they are applied here; the other kinds say what is to become of single
// fields, and are mapped back and forwarded, so that the member notes who owns
// those fields.
func (h *Handler) patch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	switch t := types.PatchType(mediaTypeOf(r)); t { //nolint:exhaustive // CBOR is not spoken
	case types.JSONPatchType:
		return h.jsonPatch(w, r, info, c, body)
	case types.MergePatchType, types.StrategicMergePatchType:
		return h.documentPatch(w, r, info, c, body, t)
	case types.ApplyYAMLPatchType:
		return h.documentPatch(w, r, info, c, body, t)
	}
	return unsupportedType(string(types.JSONPatchType), string(types.MergePatchType),
		string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType))
}

// documentPatch forwards a patch that has the form of an object.
func (h *Handler) documentPatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, body []byte, t types.PatchType) error {
	parse := parseJSON
	if t == types.ApplyYAMLPatchType {
		parse = parseYAML
	}
	doc, complaints, err := parse(body)
	if err != nil {
		return err
	}
	if err := complain(w, r, complaints); err != nil {
		return err
	}
	o, err := h.resolve(r.Context(), info, c, momentOf(doc))
	asksAnew := err == nil && o.obj.Cluster != cache.ControlPlane && adopting(c.Resource(), doc)
	if (errors.Is(err, cache.ErrNotFound) || asksAnew) && t == types.ApplyYAMLPatchType && info.Subresource == "" {
		return h.applyNew(w, r, info, c, doc)
	}
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
	resp, err := h.whenRoom(r.Context(), o, func(context.Context) (*member.Response, error) {
		return o.sendPatch(r, o.path(info, info.Subresource), doc, t)
	})
	if err != nil {
		return err
	}
	return h.uidConflict(h.answerObject(w, r, info, c, id, resp), id)
}

func (o *owned) sendPatch(r *http.Request, path string, doc document, t types.PatchType) (*member.Response, error) {
	return o.route.sendPatch(r, o.res, path, doc, t)
}

func (rt route) sendPatch(r *http.Request, res cache.Resource, path string, doc document, t types.PatchType) (*member.Response, error) {
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return rt.send(r.Context(), r, member.Request{
		Method: http.MethodPatch, Path: path, RawQuery: r.URL.RawQuery, Body: body,
	}, string(t), accept(res))
}

// uidConflict makes the refusal of the UID that was put into a patch what it
// means: the object under the name is another one.
func (h *Handler) uidConflict(err error, id *identity) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonInvalid || status.ErrStatus.Details == nil {
		return err
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Field == "metadata.uid" {
			return id.conflict(errors.New("the object was deleted, and another one has its name"))
		}
	}
	return err
}

// limitCopies bounds what the copy operations of one patch can add up to.
var limitCopies = sync.OnceFunc(func() {
	atomic.CompareAndSwapInt64(&jsonpatch.AccumulatedCopySizeLimit, 0, maxBody)
})

// jsonPatch applies a patch to the object as served and puts the result. The
// member's resourceVersion goes along, so that nothing in between is lost;
// when it did change, the patch is applied to the new state, as a single
// kube-apiserver does.
func (h *Handler) jsonPatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, body []byte) error {
	limitCopies()
	ops, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return badRequest("%v", err)
	}
	if len(ops) > maxPatchOperations {
		return apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(ops)))
	}
	o, err := h.resolve(r.Context(), info, c, cache.Version{})
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		id, doc, err := h.patched(r.Context(), info, o, ops)
		if err != nil {
			return err
		}
		resp, err := h.put(r.Context(), r, info, o, doc)
		if err != nil {
			return err
		}
		if resp.Code != http.StatusConflict || attempt == patchAttempts {
			return h.answerObject(w, r, info, c, id, resp)
		}
		obj, err := h.live(r, o)
		switch {
		case err != nil:
			return err
		case obj == nil || obj.UID != o.obj.UID:
			return id.conflict(errors.New("the object was deleted meanwhile"))
		}
		o.obj = obj
	}
}

// patched is the object as the patch makes it, mapped back.
func (h *Handler) patched(ctx context.Context, info *request.RequestInfo, o *owned, ops jsonpatch.Patch) (*identity, document, error) {
	id, err := h.identityOf(o.res, o.obj)
	if err != nil {
		return nil, nil, err
	}
	before, err := h.servedAs(info, o.res, o.obj)
	if err != nil {
		return nil, nil, err
	}
	js, err := json.Marshal(before)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %s: %w", o.res.Kind, err)
	}
	after, err := ops.Apply(js)
	if err != nil {
		return nil, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	doc, _, err := parseJSON(after)
	if err != nil {
		return nil, nil, err
	}
	if err := checkName(doc, info); err != nil {
		return nil, nil, err
	}
	meta, err := metadataOf(doc)
	if err != nil {
		return nil, nil, err
	}
	if text(meta, "resourceVersion") == "" {
		meta["resourceVersion"] = id.servedRV
	}
	return id, doc, h.toSource(ctx, info, id, doc)
}

// servedAs is an object in the group and version in which the client asks.
func (h *Handler) servedAs(info *request.RequestInfo, res cache.Resource, obj *cache.Object) (document, error) {
	k := h.kindOf(info, res)
	if k.encoding == cache.JSON {
		return h.served(res, obj.Raw())
	}
	typed, err := k.decode(obj)
	if err != nil {
		return nil, err
	}
	return toDocument(typed, k.gvk)
}
