package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	apirest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway/pieces"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// ClusterHeader names the clusters whose objects an answer concerns, comma
// separated. It is set where the answer is about single objects; audit reads it.
const ClusterHeader = proxy.ClusterHeader

// Members finds the clusters that objects live in.
type Members interface {
	// Get finds a member; the control plane has the name cache.ControlPlane.
	Get(name cache.ClusterName) (Member, bool)
	// List is in join order, the control plane first.
	List() []Member
}

// Member is one cluster that requests can be routed to.
type Member struct {
	Name  cache.ClusterName
	UID   string
	Order int64
	// Ready is false while the member does not answer.
	Ready bool
	// EverSynced is true once the cache held its objects.
	EverSynced bool
	Config     *rest.Config
	// Impersonate forwards the user by impersonation. It is always set for
	// the control plane.
	Impersonate bool
}

// Options is what a Handler needs. Cache and Members are required.
type Options struct {
	Cache   cache.Cache
	Members Members
	// Authorizer answers questions about single clusters; nil allows.
	Authorizer authorizer.Authorizer

	// Scheme and Codecs know the built-in kinds; legacyscheme's by default.
	Scheme *runtime.Scheme
	Codecs *serializer.CodecFactory
	// SelectableFields lists the field selectors of a kind that the scheme
	// does not know (a custom resource), as "spec.color"; nil means none.
	SelectableFields func(schema.GroupVersionResource) []string
	// Columns prints a kind that the scheme does not know; nil, or a nil
	// answer, prints name and age.
	Columns func(schema.GroupVersionKind) apirest.TableConvertor

	// Room asks for more of a quota in a cluster that has refused an object for
	// the lack of it, and says whether that can help; nil asks nobody.
	Room func(ctx context.Context, cluster cache.ClusterName, want Want) bool

	// Limit names the clusters that a namespace is limited to; nil, or a nil
	// answer, for all.
	Limit func(ctx context.Context, namespace string) ([]cache.ClusterName, error)

	// LoadWait is how long a LIST waits for a cluster that is not loaded.
	LoadWait time.Duration
	// MinRequestTimeout is the shortest life of a watch that names no
	// timeout; the longest is twice that.
	MinRequestTimeout time.Duration
	// BookmarkInterval is the time between two bookmarks of a watch.
	BookmarkInterval time.Duration
	// WriteTimeout ends a watch whose client does not read.
	WriteTimeout time.Duration
	// PieceBytes is how much of what LISTs have encoded is kept for the next.
	PieceBytes int64
}

// Handler serves member and dual kinds. It takes RequestInfo and the user from
// the request's context; authentication and authorization lie before it.
type Handler struct {
	Options
	kinds  kindTable
	tables *tableMaker
	// pieces are encoded parts of lists; seats are for encoding them.
	pieces *pieces.Cache
	seats  seats

	listMetrics listMetrics
	// transports reach the members; the write half uses them.
	transports *member.Pool
}

// New fills in the defaults of the options.
func New(o Options) *Handler {
	if o.Scheme == nil {
		o.Scheme = legacyscheme.Scheme
	}
	if o.Codecs == nil {
		o.Codecs = &legacyscheme.Codecs
	}
	setDefault(&o.LoadWait, 8*time.Second)
	setDefault(&o.MinRequestTimeout, 30*time.Minute)
	setDefault(&o.BookmarkInterval, time.Minute)
	setDefault(&o.WriteTimeout, 60*time.Second)
	setDefault(&o.PieceBytes, 64<<20)
	return &Handler{
		Options: o, tables: newTableMaker(o.Scheme, o.Columns), transports: &member.Pool{},
		pieces: pieces.New(o.PieceBytes), seats: newSeats(), listMetrics: newListMetrics(),
	}
}

func setDefault[T comparable](d *T, v T) {
	if *d == *new(T) {
		*d = v
	}
}

// canonical resolves a resource that is another spelling of a cached one.
// Events of events.k8s.io are the core Events: one object, one RV.
func canonical(gvr schema.GroupVersionResource) schema.GroupVersionResource {
	if gvr.Resource == "events" && gvr.Group == "events.k8s.io" && gvr.Version == "v1" {
		return schema.GroupVersionResource{Version: "v1", Resource: "events"}
	}
	return gvr
}

// requestedGVR is the resource as the client spelt it.
func requestedGVR(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// collectionFor finds the collection of a request, aliases resolved.
func (h *Handler) collectionFor(info *request.RequestInfo) (cache.Collection, bool) {
	return h.Cache.Collection(canonical(requestedGVR(info)))
}

var errNoRequestInfo = errors.New("no RequestInfo in the request's context")

// ServeHTTP answers one request on a member or dual kind.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		h.fail(w, r, &request.RequestInfo{}, apierrors.NewInternalError(errNoRequestInfo))
		return
	}
	if !info.IsResourceRequest {
		h.fail(w, r, info, pathNotFound())
		return
	}
	c, ok := h.collectionFor(info)
	if !ok {
		h.fanout(w, r, info)
		return
	}
	if err := checkScope(info, c.Resource()); err != nil {
		h.fail(w, r, info, err)
		return
	}
	h.dispatch(w, r, info, c)
}

// streamSubresources take the connection over or copy it without an end.
var streamSubresources = map[string]bool{
	"log": true, "exec": true, "attach": true, "portforward": true, "proxy": true,
}

func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	switch {
	case streamSubresources[info.Subresource]:
		h.stream(w, r, info, c)
	case info.Subresource != "":
		h.write(w, r, info, c)
	case info.Verb == "get":
		h.get(w, r, info, c)
	case info.Verb == "list":
		h.list(w, r, info, c)
	case info.Verb == "watch":
		h.watch(w, r, info, c)
	case info.Verb == "create":
		h.create(w, r, info, c)
	default:
		h.write(w, r, info, c)
	}
}

// checkScope refuses paths that a real server has no route for: a namespace
// before a cluster-scoped kind, a single namespaced object without one.
func checkScope(info *request.RequestInfo, res cache.Resource) error {
	single := info.Verb != "list" && info.Verb != "watch" && info.Verb != "deletecollection"
	switch {
	case res.Namespaced && info.Namespace == "" && single:
		return pathNotFound()
	case !res.Namespaced && info.Namespace != "" && info.Resource != "namespaces":
		return pathNotFound()
	}
	return nil
}

func pathNotFound() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "the server could not find the requested resource", 0, false)
}

// keyOf is the key of the single object that a request names.
func keyOf(info *request.RequestInfo, res cache.Resource) cache.Key {
	key := cache.Key{Name: info.Name}
	if res.Namespaced {
		key.Namespace = info.Namespace
	}
	return key
}

// get answers with one object out of the cache.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveGet(w, r, info, c); err != nil {
		h.fail(w, r, info, err)
	}
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveList(w, r, info, c); err != nil {
		h.fail(w, r, info, err)
	}
}

func (h *Handler) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveWatch(w, r, info, c); err != nil {
		h.fail(w, r, info, err)
	}
}

// setClusters names the owners of the objects that an answer is about, in the
// header that the router copies into the audit event. Call it before the first
// byte is written.
func setClusters(w http.ResponseWriter, names ...cache.ClusterName) {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	w.Header().Set(ClusterHeader, strings.Join(parts, ","))
}

// badRequest is a 400 with the given text.
func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}
