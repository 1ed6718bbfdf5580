package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// delete ends one object in its cluster.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	options, err := deleteOptions(r)
	if err != nil {
		return err
	}
	o, err := h.resolve(r.Context(), info, c, momentOfDelete(options))
	if err != nil {
		return err
	}
	id, err := h.identityOf(o.res, o.obj)
	if err != nil {
		return err
	}
	if err := id.precondition(options); err != nil {
		return err
	}
	resp, err := o.sendDelete(r.Context(), r, o.path(info, ""), options)
	if err != nil {
		return err
	}
	return h.answerDelete(w, r, info, c, id, resp, len(options.DryRun) > 0)
}

// deleteOptions reads the options of a deletion from the body or, where there
// is none, from the query.
func deleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) == 0 {
		if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
			return nil, badRequest("%v", err)
		}
	} else if err := decodeDeleteOptions(r, body, options); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return options, nil
}

func decodeDeleteOptions(r *http.Request, body []byte, options *metav1.DeleteOptions) error {
	codecs := metainternalversionscheme.Codecs
	info, err := negotiation.NegotiateInputSerializer(r, false, codecs)
	if err != nil {
		return err
	}
	// Clients may send the options under the group of the resource.
	gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	gvk.Group = ""
	obj, _, err := codecs.DecoderToVersion(info.Serializer, gvk.GroupVersion()).Decode(body, &gvk, options)
	if err != nil {
		return badRequest("%v", err)
	}
	if obj != options {
		return badRequest("decoded object cannot be converted to DeleteOptions")
	}
	return nil
}

func momentOfDelete(options *metav1.DeleteOptions) cache.Version {
	if options.Preconditions == nil || options.Preconditions.ResourceVersion == nil {
		return cache.Version{}
	}
	return momentOf(document{"metadata": document{"resourceVersion": *options.Preconditions.ResourceVersion}})
}

// precondition makes a deletion hit only the object that the name was resolved
// to, and translates the resourceVersion of a condition.
func (id *identity) precondition(options *metav1.DeleteOptions) error {
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	p := options.Preconditions
	if p.UID != nil && *p.UID != id.uid {
		return id.conflict(uidMismatch(*p.UID, id.uid))
	}
	uid := id.uid
	p.UID = &uid
	if p.ResourceVersion == nil {
		return nil
	}
	at := document{"resourceVersion": *p.ResourceVersion}
	if err := id.translateRV(at); err != nil {
		return err
	}
	rv := text(at, "resourceVersion")
	p.ResourceVersion = &rv
	return nil
}

func uidMismatch(given, actual types.UID) error {
	return fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", given, actual) //nolint:staticcheck // the text of kube-apiserver
}

// deleteParameters are the query's form of DeleteOptions.
var deleteParameters = []string{
	"gracePeriodSeconds", "propagationPolicy", "orphanDependents", "dryRun", "preconditions",
	"ignoreStoreReadErrorWithClusterBreakingPotential",
}

// sendDelete sends the options as a body, which then holds all of them.
func (o *owned) sendDelete(ctx context.Context, r *http.Request, path string, options *metav1.DeleteOptions) (*member.Response, error) {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encoding DeleteOptions: %w", err)
	}
	return o.send(ctx, r, member.Request{
		Method: http.MethodDelete, Path: path, RawQuery: without(r.URL.Query(), deleteParameters...), Body: body,
	}, jsonType, accept(o.res))
}

func without(query url.Values, keys ...string) string {
	for _, k := range keys {
		query.Del(k)
	}
	return query.Encode()
}

// answerDelete answers with what the member said: the object that is going
// away, the one that has gone, or a Status.
func (h *Handler) answerDelete(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, id *identity, resp *member.Response, dryRun bool) error {
	setClusters(w, id.cluster)
	passHeaders(w, resp)
	a, err := h.parseAnswer(resp)
	if err != nil {
		return renameStatus(err, id)
	}
	if dryRun {
		return h.answerKind(w, r, info, c, id, a)
	}
	lingers, err := a.lingers(id)
	if err != nil {
		return err
	}
	if lingers {
		obj, err := h.observe(r.Context(), c, id, a)
		if err != nil {
			return unseen(id, err)
		}
		if obj != nil {
			return h.writeServed(w, r, info, c, a.code, obj)
		}
		return h.answerUnkept(w, r, info, c, id, a)
	}
	h.awaitDeleted(r.Context(), c, id)
	return h.answerKind(w, r, info, c, id, a)
}

func (h *Handler) answerKind(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, id *identity, a *answer) error {
	switch a.gvk.Kind {
	case "Status":
		return h.answerStatus(w, r, info, id, a)
	case id.res.Kind:
		return h.answerUnkept(w, r, info, c, id, a)
	}
	return h.answerOther(w, r, info, id, a)
}

// lingers tells whether the answer to a deletion is an object that is still
// there: one that has time or finalizers left. A member answers with the object
// of a deletion at once too.
func (a *answer) lingers(id *identity) (bool, error) {
	if a.gvk.Kind != id.res.Kind {
		return false, nil
	}
	meta, err := a.meta()
	if err != nil {
		return false, err
	}
	grace := meta.DeletionGracePeriodSeconds
	return len(meta.Finalizers) > 0 || grace != nil && *grace > 0, nil
}

// awaitDeleted waits until no read shows the object any more. The deletion
// has happened whether that is seen or not.
func (h *Handler) awaitDeleted(ctx context.Context, c cache.Collection, id *identity) {
	if err := c.ObserveDeleted(ctx, id.cluster, id.namespace, id.sourceName, id.uid); err != nil {
		klog.FromContext(ctx).V(2).Info("Deletion not seen yet", "cluster", string(id.cluster), "name", id.sourceName, "err", err)
	}
}
