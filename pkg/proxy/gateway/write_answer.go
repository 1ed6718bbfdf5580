package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// answer is a member's answer, taken apart.
type answer struct {
	code int
	gvk  schema.GroupVersionKind
	raw  []byte // bare protobuf message, or JSON
	// proto is set when raw is protobuf.
	proto bool
}

// parseAnswer finds out what a member sent. A Status of failure comes back as
// an error with everything it said, names still the member's own.
func (h *Handler) parseAnswer(resp *member.Response) (*answer, error) {
	a := &answer{code: resp.Code, raw: resp.Body}
	if isProtobuf(resp.Header) {
		var u runtime.Unknown
		body, ok := strings.CutPrefix(string(resp.Body), "k8s\x00")
		if !ok || u.Unmarshal([]byte(body)) != nil {
			return nil, badAnswer(resp)
		}
		a.gvk = schema.FromAPIVersionAndKind(u.APIVersion, u.Kind)
		a.raw, a.proto = u.Raw, true
	} else {
		var t metav1.TypeMeta
		if err := json.Unmarshal(resp.Body, &t); err != nil {
			return nil, badAnswer(resp)
		}
		a.gvk = t.GroupVersionKind()
	}
	if resp.Code < 200 || resp.Code > 299 {
		return nil, a.failure(resp)
	}
	return a, nil
}

// badAnswer stands for an answer that is no Kubernetes object, such as one of
// a load balancer before the member.
func badAnswer(resp *member.Response) error {
	code := resp.Code
	if code < 400 {
		code = http.StatusBadGateway
	}
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", sanitize(string(resp.Body), 512), 0, true)
}

func (a *answer) failure(resp *member.Response) error {
	var status metav1.Status
	if a.gvk.Kind != "Status" || a.decode(&status) != nil {
		return badAnswer(resp)
	}
	status.TypeMeta = metav1.TypeMeta{}
	status.Code = int32(resp.Code)
	status.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: status}
}

// decode reads the answer into a meta type.
func (a *answer) decode(into interface{ Unmarshal([]byte) error }) error {
	if a.proto {
		return into.Unmarshal(a.raw)
	}
	return json.Unmarshal(a.raw, into)
}

// meta reads the metadata of an object: in protobuf every top-level kind has
// it where PartialObjectMetadata has it.
func (a *answer) meta() (*metav1.ObjectMeta, error) {
	var p metav1.PartialObjectMetadata
	if err := a.decode(&p); err != nil {
		return nil, fmt.Errorf("metadata of the answer: %w", err)
	}
	return &p.ObjectMeta, nil
}

// document reads the whole answer.
func (h *Handler) document(a *answer) (document, error) {
	if !a.proto {
		doc, _, err := parseJSON(a.raw)
		return doc, err
	}
	obj, err := h.newMessage(a.gvk)
	if err != nil {
		return nil, err
	}
	if err := obj.Unmarshal(a.raw); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", a.gvk.Kind, err)
	}
	return toDocument(obj, a.gvk)
}

// renameStatus gives an error the name that the client used.
func renameStatus(err error, id *identity) error {
	status, ok := err.(*apierrors.StatusError) //nolint:errorlint // only what parseAnswer made
	if !ok || id == nil || id.servedName == id.sourceName {
		return err
	}
	s := &status.ErrStatus
	if s.Details != nil && s.Details.Name == id.sourceName {
		s.Details.Name = id.servedName
	}
	s.Message = strings.ReplaceAll(s.Message, strconv.Quote(id.sourceName), strconv.Quote(id.servedName))
	return err
}

// passHeaders lets through what a member says to the client beside the body.
func passHeaders(w http.ResponseWriter, resp *member.Response) {
	for _, key := range []string{"Warning", "Retry-After"} {
		for _, v := range resp.Header.Values(key) {
			w.Header().Add(key, v)
		}
	}
}

func isDryRun(r *http.Request) bool {
	return slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll)
}

// answerObject answers with the object that a write left behind: as served,
// with the RV that its event has, and only when every read sees it.
func (h *Handler) answerObject(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, id *identity, resp *member.Response) error {
	setClusters(w, id.cluster)
	passHeaders(w, resp)
	a, err := h.parseAnswer(resp)
	if err != nil {
		return renameStatus(err, id)
	}
	if a.gvk.Kind == "Status" {
		return h.answerStatus(w, r, info, id, a)
	}
	if a.gvk.Kind != id.res.Kind {
		return h.answerOther(w, r, info, id, a)
	}
	if isDryRun(r) {
		return h.answerUnkept(w, r, info, c, id, a)
	}
	obj, err := h.observe(r.Context(), c, id, a)
	if err != nil {
		return unseen(id, err)
	}
	if obj == nil {
		return h.answerUnkept(w, r, info, c, id, a)
	}
	return h.writeServed(w, r, info, c, a.code, obj)
}

// observe makes the object in an answer visible. It returns nil when readers
// see none of its UID any more: it has gone, or another has its name by now.
func (h *Handler) observe(ctx context.Context, c cache.Collection, id *identity, a *answer) (*cache.Object, error) {
	meta, err := a.meta()
	if err != nil {
		return nil, err
	}
	if err := belongs(meta, id); err != nil {
		return nil, err
	}
	rv, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("resourceVersion of the answer: %w", err)
	}
	raw, err := h.cacheForm(id.res, a)
	if err != nil {
		return nil, err
	}
	obj, err := c.Observe(ctx, id.cluster, meta.Namespace, meta.Name, rv, raw)
	if err != nil || obj == nil || obj.UID != meta.UID {
		return nil, err
	}
	return obj, nil
}

var errOtherObject = errors.New("answered with another object than it was asked about")

// belongs refuses the object of another name: a member must not change what is
// known of objects that nobody asked about.
func belongs(meta *metav1.ObjectMeta, id *identity) error {
	if id.sourceName != "" && meta.Name != id.sourceName || meta.Namespace != id.namespace {
		return fmt.Errorf("%w: %s/%s", errOtherObject, sanitize(meta.Namespace, 64), sanitize(meta.Name, 64))
	}
	return nil
}

// cacheForm gives an answer the encoding and the version of the collection: an
// Event written as events.k8s.io is kept as a core one.
func (h *Handler) cacheForm(res cache.Resource, a *answer) ([]byte, error) {
	gvk := res.GroupVersion().WithKind(res.Kind)
	if a.gvk == gvk && a.proto == (res.Encoding == cache.Protobuf) {
		return a.raw, nil
	}
	doc, err := h.document(a)
	if err != nil {
		return nil, err
	}
	if a.gvk == gvk {
		return h.encodeRaw(res, doc)
	}
	return h.convertRaw(res, doc, a.gvk)
}

func (h *Handler) convertRaw(res cache.Resource, doc document, from schema.GroupVersionKind) ([]byte, error) {
	js, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", from.Kind, err)
	}
	obj, err := h.Scheme.New(from)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", from.Kind, err)
	}
	if err := json.Unmarshal(js, obj); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", from.Kind, err)
	}
	internal, err := h.Scheme.ConvertToVersion(obj, schema.GroupVersion{Group: from.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", from.Kind, err)
	}
	converted, err := h.Scheme.ConvertToVersion(internal, res.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", from.Kind, err)
	}
	m, ok := converted.(message)
	if !ok {
		return nil, fmt.Errorf("kind %s has no protobuf form", from.Kind)
	}
	return m.Marshal()
}

// answerUnkept answers with an object that is not in the cluster (a dry run,
// one that a deletion ended), as it would be served.
func (h *Handler) answerUnkept(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, id *identity, a *answer) error {
	meta, err := a.meta()
	if err != nil {
		return err
	}
	if err := belongs(meta, id); err != nil {
		return unseen(id, err)
	}
	raw, err := h.cacheForm(id.res, a)
	if err != nil {
		return err
	}
	doc, err := h.served(id.res, raw)
	if err != nil {
		return err
	}
	id.toServed(doc)
	if raw, err = h.encodeRaw(id.res, doc); err != nil {
		return err
	}
	served := child(doc, "metadata")
	rv, _ := strconv.ParseUint(text(served, "resourceVersion"), 10, 64)
	obj := &cache.Object{
		Key:     cache.Key{Namespace: text(served, "namespace"), Name: text(served, "name")},
		Cluster: id.cluster, SourceName: id.sourceName, UID: id.uid, RV: rv, Body: cache.Bytes(raw),
	}
	return h.writeServed(w, r, info, c, a.code, obj)
}

// answerStatus passes on a Status of success.
func (h *Handler) answerStatus(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, id *identity, a *answer) error {
	var status metav1.Status
	if err := a.decode(&status); err != nil {
		return fmt.Errorf("status of the answer: %w", err)
	}
	if status.Details != nil && status.Details.Name == id.sourceName {
		status.Details.Name = id.servedName
	}
	h.writeObject(w, r, info, a.code, &status)
	return nil
}

// answerOther passes on an object of another kind than the resource's: a
// Scale, an Eviction, what a custom subresource answers.
func (h *Handler) answerOther(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, id *identity, a *answer) error {
	doc, err := h.document(a)
	if err != nil {
		return err
	}
	if meta := child(doc, "metadata"); meta != nil {
		id.nameToServed(meta)
	}
	js, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", a.gvk.Kind, err)
	}
	obj, _, err := h.Codecs.UniversalDeserializer().Decode(js, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(a.code)
		if _, err := w.Write(js); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Writing an answer", "err", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("decoding %s: %w", a.gvk.Kind, err)
	}
	h.writeObject(w, r, info, a.code, obj)
	return nil
}

// writeObject answers with an object that is not of a cached kind.
func (h *Handler) writeObject(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, code int, obj runtime.Object) {
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	if _, ok := obj.(*metav1.Status); ok {
		gv = schema.GroupVersion{Version: "v1"}
	} else if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		gv = gvk.GroupVersion()
	}
	responsewriters.WriteObjectNegotiated(h.Codecs, negotiation.DefaultEndpointRestrictions, gv, w, r, code, obj, false)
}
