package proxy

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// PropagationFinalizer holds a template until the members have let its copies go.
const PropagationFinalizer = "isthmus.dev/propagation"

// settleLimit is the longest that a write waits for the members.
const settleLimit = 5 * time.Second

// Ref names one object that was written.
type Ref struct {
	Namespace, Name string
	UID             types.UID
}

// Settler waits until a write has come to the members that can be reached. It
// returns early when that is not to be expected.
type Settler interface {
	// Gone waits until the template does not exist.
	Gone(ctx context.Context, gvr schema.GroupVersionResource, ref Ref)
	// AllGone waits until of what a LIST with these selectors finds nothing is
	// being deleted that only the members hold.
	AllGone(ctx context.Context, gvr schema.GroupVersionResource, namespace, labelSelector, fieldSelector string)
	// InPlace waits until the copies exist.
	InPlace(ctx context.Context, gk schema.GroupKind, ref Ref)
}

// Settling says what the answer to a write waits for.
type Settling uint8

const (
	// NotSettling: the answer is given at once.
	NotSettling Settling = iota
	// UntilGone: a client that deletes an object may create it anew at once, as
	// on one cluster, where no finalizer holds it.
	UntilGone
	// UntilInPlace: what is created next in a member is judged by this object.
	UntilInPlace
)

// judging are the kinds whose objects decide about others when these are
// created.
var judging = map[schema.GroupResource]string{
	{Resource: "limitranges"}:                                 "LimitRange",
	{Resource: "resourcequotas"}:                              "ResourceQuota",
	{Resource: "serviceaccounts"}:                             "ServiceAccount",
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}: "PriorityClass",
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:        "RuntimeClass",
}

// DecideSettling is a pure function of the request.
func DecideSettling(info *request.RequestInfo, r *http.Request, loopback bool) Settling {
	if loopback || info == nil || !info.IsResourceRequest || info.Subresource != "" || len(r.URL.Query()["dryRun"]) > 0 {
		return NotSettling
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch {
	case info.Verb == "delete" || info.Verb == "deletecollection":
		if gr == (schema.GroupResource{Resource: "namespaces"}) {
			return NotSettling // takes its time on one cluster too
		}
		return UntilGone
	case info.Verb == "create" && judging[gr] != "":
		return UntilInPlace
	}
	return NotSettling
}

func (rt *Router) serveSettling(w http.ResponseWriter, r *http.Request, next http.Handler, info *request.RequestInfo) {
	if how := DecideSettling(info, r, IsLoopback(r.Context())); how != NotSettling && rt.Settler != nil {
		rt.serveSettled(w, r, next, info, how)
		return
	}
	next.ServeHTTP(w, r)
}

// serveSettled holds the answer of the control plane back until the members
// have followed, for a limited time.
func (rt *Router) serveSettled(w http.ResponseWriter, r *http.Request, next http.Handler, info *request.RequestInfo, how Settling) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding") // the answer is read here
	held := &heldWriter{ResponseWriter: w}
	next.ServeHTTP(held, r)
	if held.code/100 == 2 && !held.through {
		rt.await(r.Context(), r.URL.Query(), info, how, held.body.Bytes()) //nolint:contextcheck // the request's own
	}
	held.release()
}

func (rt *Router) await(ctx context.Context, query url.Values, info *request.RequestInfo, how Settling, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if info.Verb == "deletecollection" {
		rt.Settler.AllGone(ctx, gvr, info.Namespace, query.Get("labelSelector"), query.Get("fieldSelector"))
		return
	}
	m := metaOf(body)
	if m == nil {
		return
	}
	ref := Ref{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}
	switch {
	case how == UntilInPlace:
		rt.Settler.InPlace(ctx, schema.GroupKind{Group: gvr.Group, Kind: judging[gvr.GroupResource()]}, ref)
	case HeldByMembersOnly(m):
		rt.Settler.Gone(ctx, gvr, ref)
	}
}

// metaOf reads the object of an answer; nil when it is none.
func metaOf(body []byte) metav1.Object {
	object, _ := DecodeObject(body)
	if object == nil {
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil || m.GetUID() == "" {
		return nil
	}
	return m
}

// HeldByMembersOnly says whether an object that is being deleted goes as soon
// as the members have let its copies go.
func HeldByMembersOnly(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil && slices.Equal(m.GetFinalizers(), []string{PropagationFinalizer})
}

// heldWriter keeps an answer; one that is too long goes through.
type heldWriter struct {
	http.ResponseWriter
	code    int
	body    bytes.Buffer
	through bool
}

// Unwrap lets http.ResponseController reach the inner writer.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *heldWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

func (w *heldWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	if !w.through && w.body.Len()+len(b) > heldLimit {
		w.release()
		w.through = true
	}
	if w.through {
		return w.ResponseWriter.Write(b)
	}
	return w.body.Write(b)
}

const heldLimit = 8 << 20

func (w *heldWriter) release() {
	if w.through || w.code == 0 {
		return
	}
	w.ResponseWriter.WriteHeader(w.code)
	_, _ = w.body.WriteTo(w.ResponseWriter) // a client that is gone misses nothing
}
