package gateway

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// stream routes log, exec, attach, portforward and proxy to the owner, query
// and protocol as they are.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveStream(w, r, info, c); err != nil {
		h.refuse(w, r, info, err)
	}
}

func (h *Handler) serveStream(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	if info.Name == "" {
		return apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
	}
	o, err := h.resolve(r.Context(), info, c, cache.Version{})
	if err != nil {
		return err
	}
	rest, ok := afterName(r.URL.EscapedPath(), info)
	if !ok {
		return pathNotFound()
	}
	h.forward(w, r, info, o, rest)
	return nil
}

// through copies a request to a member and is counted while it lasts, as
// kube-apiserver counts what it connects.
func through(t *member.Transport, w http.ResponseWriter, r *http.Request, info *request.RequestInfo, f member.Forward) {
	metrics.RecordLongRunning(r, info, metrics.APIServerComponent, func() { t.Stream(w, r, f) })
}

// forward copies a request on a subresource of an object, and its answer.
// rest is the escaped path from the subresource on.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, o *owned, rest string) {
	setClusters(w, o.obj.Cluster)
	sub, _, _ := strings.Cut(rest, "/")
	through(o.transport, w, r, info, member.Forward{
		Path: o.path(info, rest), RawQuery: r.URL.RawQuery, User: o.user,
		Root:   o.path(info, sub),
		Served: memberPath(requestedGVR(info), o.obj.Key.Namespace, o.obj.Key.Name, sub),
		Fail: func(w http.ResponseWriter, r *http.Request, err error) {
			h.refuse(w, r, info, err)
		},
	})
}

// afterName is what follows the object's name in an escaped path, from the
// subresource on.
func afterName(escaped string, info *request.RequestInfo) (string, bool) {
	skip := 2 // "api", version
	if info.APIGroup != "" {
		skip = 3
	}
	if info.Namespace != "" && info.Resource != "namespaces" {
		skip += 2
	}
	rest := strings.TrimPrefix(escaped, "/")
	for range skip + 2 { // resource, name
		_, after, found := strings.Cut(rest, "/")
		if !found {
			return "", false
		}
		rest = after
	}
	sub, _, _ := strings.Cut(rest, "/")
	return rest, sub == info.Subresource
}

// clusterProxyPrefix is where the API of each member is served.
const clusterProxyPrefix = "/apis/cluster.karmada.io/v1alpha1/clusters/"

// ServeClusterProxy carries any request to the API of one member: every
// method, watches, uploads and upgrades, nothing held back. path is the path in
// the member; where the request's own path has its escaped form, that is used.
// Whoever may use clusters/NAME/proxy may do there what the
// member's route identity may do, or, where the member takes impersonation,
// what the user may do.
func (h *Handler) ServeClusterProxy(w http.ResponseWriter, r *http.Request, name, path string) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		info = &request.RequestInfo{Verb: "get", Path: r.URL.Path}
	}
	cluster := cache.ClusterName(name)
	if _, known := h.Members.Get(cluster); !known || cluster == cache.ControlPlane {
		h.fail(w, r, info, apierrors.NewNotFound(schema.GroupResource{Group: "cluster.karmada.io", Resource: "clusters"}, name))
		return
	}
	rt, err := h.routeTo(r.Context(), cluster, info)
	if err != nil {
		h.refuse(w, r, info, err)
		return
	}
	setClusters(w, cluster)
	served := clusterProxyPrefix + name + "/proxy"
	through(rt.transport, w, r, info, member.Forward{
		Path: escapedRest(r.URL, served, path), RawQuery: r.URL.RawQuery, User: rt.user,
		Root: "", Served: served,
		Fail: func(w http.ResponseWriter, r *http.Request, err error) {
			h.refuse(w, r, info, h.clusterProxyError(err))
		},
	})
}

// escapedRest is what follows prefix in a URL's path, as it came over the wire.
func escapedRest(u *url.URL, prefix, path string) string {
	rest, ok := strings.CutPrefix(u.EscapedPath(), prefix)
	if ok && (rest == "" || strings.HasPrefix(rest, "/")) {
		return rest
	}
	return (&url.URL{Path: path}).EscapedPath()
}

// clusterProxyError makes every way of not reaching a member a 503: the proxy
// is how an operator looks at a cluster, and a client tells it from a 504 of
// the member itself.
func (h *Handler) clusterProxyError(err error) error {
	var gone *member.UnreachableError
	if !errors.As(err, &gone) || !gone.Sent {
		return err
	}
	translated := h.memberError(err)
	var status *apierrors.StatusError
	if errors.As(translated, &status) && status.ErrStatus.Code == http.StatusGatewayTimeout {
		status.ErrStatus.Code = http.StatusServiceUnavailable
		status.ErrStatus.Reason = "ServiceUnavailable"
	}
	return translated
}
