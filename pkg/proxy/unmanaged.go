package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// UnmanagedHeader marks, between router and gateway, a read of a federated
// workload that concerns the members' own, unmanaged objects. Its value is the
// control plane's resourceVersion of the kind. It is never taken from a client.
const UnmanagedHeader = "X-Isthmus-Unmanaged"

// workloads are the federated kinds whose unmanaged member objects can be read
// through the endpoint, so that drain and orphan cleaners do not mistake the
// owner of a Pod for absent.
var workloads = map[schema.GroupResource]bool{
	{Group: "apps", Resource: "deployments"}:  true,
	{Group: "apps", Resource: "statefulsets"}: true,
	{Group: "apps", Resource: "daemonsets"}:   true,
	{Group: "batch", Resource: "cronjobs"}:    true,
	{Resource: "replicationcontrollers"}:      true,
}

// fallThroughWait bounds what a GET of an absent template costs while a member
// does not answer.
const fallThroughWait = time.Second

// Unmanaged says how a request on a federated kind concerns the members' own
// objects.
type Unmanaged uint8

const (
	// NotUnmanaged: the control plane alone answers.
	NotUnmanaged Unmanaged = iota
	// IfAbsent: a GET that falls through when the control plane has no such
	// object.
	IfAbsent
	// Instead: a LIST whose selector names clusters. Templates have no cluster
	// label, so only member objects can match.
	Instead
	// Beside: a creation, which warns of members' own objects of that name.
	Beside
	// Hint: a write of an object that only members may have, which is not
	// routed to them: the 404 says how it can be.
	Hint
)

// kubectlCommand is the header in which kubectl says what it does. An apply
// asks whether it has to create the template: to it, a member's own object is
// no answer.
const kubectlCommand = "Kubectl-Command"

// DecideUnmanaged is a pure function of the request.
func DecideUnmanaged(info *request.RequestInfo, r *http.Request, loopback bool) Unmanaged {
	if loopback || info == nil || !info.IsResourceRequest {
		return NotUnmanaged
	}
	if !workloads[schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}] {
		return NotUnmanaged
	}
	if info.Subresource != "" {
		if info.Name == "" || info.Subresource == "status" {
			return NotUnmanaged
		}
		return Hint
	}
	switch info.Verb {
	case "get":
		if r.Header.Get(kubectlCommand) != "kubectl apply" {
			return IfAbsent
		}
	case "list":
		if namesClusters(r.URL.Query().Get("labelSelector")) {
			return Instead
		}
	case "create":
		return Beside
	case "patch":
		if strings.HasPrefix(r.Header.Get("Content-Type"), string(types.ApplyYAMLPatchType)) {
			return Beside
		}
		return Hint
	case "update", "delete":
		return Hint
	}
	return NotUnmanaged
}

// namesClusters says whether a selector requires a cluster label.
func namesClusters(selector string) bool {
	if !strings.Contains(selector, cache.ClusterLabel) {
		return false
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return false // the control plane says what is wrong with it
	}
	requirements, _ := parsed.Requirements()
	for _, r := range requirements {
		if r.Key() == cache.ClusterLabel && !r.Matches(labels.Set{}) {
			return true
		}
	}
	return false
}

// serveUnmanaged answers with members' own objects where they are concerned.
func (rt *Router) serveUnmanaged(w http.ResponseWriter, r *http.Request, next http.Handler, how Unmanaged) {
	if how == Instead {
		rt.Gateway.ServeHTTP(w, withRevision(r, revision(r, next)))
		return
	}
	if how == Beside {
		next.ServeHTTP(w, rt.warnOfUnmanaged(r))
		return
	}
	absent := &absentWriter{ResponseWriter: w}
	if how == Hint {
		info, _ := request.RequestInfoFrom(r.Context())
		rt.serveSettling(absent, r, next, info)
		if absent.caught {
			rt.hint(w, r, info, absent)
		}
		return
	}
	next.ServeHTTP(absent, r)
	if absent.caught {
		rt.fallThrough(w, r, absent)
	}
}

// hint adds to the control plane's 404 which member holds an object of that
// name, and how it comes under management.
func (rt *Router) hint(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, absent *absentWriter) {
	object, _ := DecodeObject(absent.body)
	status, ok := object.(*metav1.Status)
	if !ok || status.Reason != metav1.StatusReasonNotFound {
		absent.release()
		return
	}
	cluster, held := rt.unmanaged(r, info, info.Name)
	if !held {
		absent.release()
		return
	}
	status.Message += fmt.Sprintf(": cluster %q holds one that is not managed and can only be read here; to manage it: multicluster-apiserver adopt --cluster %s -n %s %s/%s",
		cluster, cluster, info.Namespace, strings.TrimSuffix(info.Resource, "s"), info.Name)
	responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: *status}, legacyscheme.Codecs,
		schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
}

// unmanaged asks the members for an object of their own.
func (rt *Router) unmanaged(r *http.Request, info *request.RequestInfo, name string) (cluster string, held bool) {
	get := *info
	get.Verb, get.Subresource, get.Name = "get", "", name
	ctx, cancel := context.WithTimeout(request.WithRequestInfo(r.Context(), &get), fallThroughWait)
	defer cancel()
	ask := withRevision(r.WithContext(ctx), "0")
	ask.Method, ask.Body, ask.URL.RawQuery = http.MethodGet, http.NoBody, ""
	ask.Header.Set("Accept", "application/json")
	answer := httptest.NewRecorder()
	rt.Gateway.ServeHTTP(answer, ask)
	return answer.Header().Get(ClusterHeader), answer.Code == http.StatusOK
}

// fallThrough asks the members; when none has the object either, the control
// plane's own answer stands.
func (rt *Router) fallThrough(w http.ResponseWriter, r *http.Request, absent *absentWriter) {
	ctx, cancel := context.WithTimeout(r.Context(), fallThroughWait)
	defer cancel()
	answer := httptest.NewRecorder()
	rt.Gateway.ServeHTTP(answer, withRevision(r.WithContext(ctx), "0"))
	if answer.Code != http.StatusOK {
		absent.release()
		return
	}
	w = &auditWriter{ResponseWriter: w, request: r}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(answer.Body.Bytes())
}

// warnOfUnmanaged adds a warning to the answer when a member holds an object
// of its own under the name that is being created. It returns a request whose
// body can still be read.
func (rt *Router) warnOfUnmanaged(r *http.Request) *http.Request {
	info, _ := request.RequestInfoFrom(r.Context())
	name := info.Name
	if name == "" {
		body, peeked, err := PeekBody(r)
		r = peeked
		object, _ := DecodeObject(body)
		accessor, errMeta := meta.Accessor(object)
		if err != nil || errMeta != nil || accessor.GetName() == "" {
			return r // the control plane says what is wrong with it
		}
		name = accessor.GetName()
	}
	if cluster, held := rt.unmanaged(r, info, name); held {
		warning.AddWarning(r.Context(), "", fmt.Sprintf("cluster %q holds an unmanaged %s %s/%s, which is left alone: see \"kubectl describe\" of its binding",
			cluster, info.Resource, info.Namespace, name))
	}
	return r
}

func withRevision(r *http.Request, revision string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set(UnmanagedHeader, revision)
	return r
}

// revision asks the control plane for the present resourceVersion of the kind.
func revision(r *http.Request, next http.Handler) string {
	ask := r.Clone(r.Context())
	ask.Header.Set("Accept", "application/json")
	ask.Header.Del("Accept-Encoding")
	ask.URL.RawQuery = url.Values{"limit": {"1"}}.Encode()
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, ask)
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(answer.Body.Bytes(), &list) != nil || list.Metadata.ResourceVersion == "" {
		return "0"
	}
	return list.Metadata.ResourceVersion
}

// absentWriter holds a 404 back, so that another answer can take its place.
type absentWriter struct {
	http.ResponseWriter
	caught bool
	body   []byte
	header http.Header
}

// Unwrap lets http.ResponseController reach the inner writer.
func (w *absentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header is a copy of its own until the status is known.
func (w *absentWriter) Header() http.Header {
	if w.header == nil {
		w.header = w.ResponseWriter.Header().Clone()
		if w.header == nil {
			w.header = http.Header{}
		}
	}
	return w.header
}

func (w *absentWriter) WriteHeader(code int) {
	if code == http.StatusNotFound {
		w.caught = true
		return
	}
	w.commit(code)
}

func (w *absentWriter) commit(code int) {
	maps.Copy(w.ResponseWriter.Header(), w.Header())
	w.ResponseWriter.WriteHeader(code)
}

func (w *absentWriter) Write(b []byte) (int, error) {
	if w.caught {
		w.body = append(w.body, b...)
		return len(b), nil
	}
	maps.Copy(w.ResponseWriter.Header(), w.header)
	return w.ResponseWriter.Write(b)
}

// release sends the held answer.
func (w *absentWriter) release() {
	w.commit(http.StatusNotFound)
	_, _ = w.ResponseWriter.Write(w.body)
}
