package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// route is the way to the cluster that a request is for.
type route struct {
	member    Member
	transport *member.Transport
	// user is who the member is told acts; nil when it sees our identity.
	user user.Info
}

// owned is an existing object with the way to it.
type owned struct {
	route
	c   cache.Collection
	res cache.Resource
	obj *cache.Object
}

// routeTo finds the way to a cluster and asks whether the user may take it.
func (h *Handler) routeTo(ctx context.Context, name cache.ClusterName, info *request.RequestInfo) (route, error) {
	m, ok := h.Members.Get(name)
	if !ok {
		h.transports.Retain(func(name cache.ClusterName) bool {
			_, known := h.Members.Get(name)
			return known
		})
		return route{}, &member.UnreachableError{Cluster: name, Err: errors.New("is not a member any more")}
	}
	u, _ := request.UserFrom(ctx)
	if err := h.authorizeCluster(ctx, info, name); err != nil {
		return route{}, err
	}
	t, err := h.transports.For(name, m.Config)
	if err != nil {
		return route{}, err
	}
	rt := route{member: m, transport: t}
	if m.Impersonate || name == cache.ControlPlane {
		if u == nil {
			return route{}, apierrors.NewUnauthorized("no user to act for")
		}
		rt.user = u
	}
	return rt, nil
}

// resolve finds the object that a name means, and its cluster. A name that is
// only reserved, because its object was just deleted, means nothing.
func (h *Handler) resolve(ctx context.Context, info *request.RequestInfo, c cache.Collection, at cache.Version) (*owned, error) {
	res := c.Resource()
	obj, err := c.Get(ctx, keyOf(info, res), at)
	if err != nil {
		if errors.Is(err, cache.ErrNotFound) {
			// A cluster that is not loaded may hold the object: "not found"
			// would tell a client that its deletion is done.
			if gaps := notLoaded(c.Gaps()); len(gaps) > 0 {
				return nil, &cache.NotLoadedError{Gaps: gaps}
			}
		}
		return nil, err
	}
	rt, err := h.routeTo(ctx, obj.Cluster, info)
	if err != nil {
		return nil, err
	}
	return &owned{route: rt, c: c, res: res, obj: obj}, nil
}

func notLoaded(gaps []cache.Gap) []cache.Gap {
	var out []cache.Gap
	for _, g := range gaps {
		if g.Kind == cache.NotLoaded {
			out = append(out, g)
		}
	}
	return out
}

// memberPath is the escaped path of an object in its cluster. rest is an
// escaped subresource path, "" or without a leading slash.
func memberPath(gvr schema.GroupVersionResource, namespace, name, rest string) string {
	var b strings.Builder
	if gvr.Group == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/" + url.PathEscape(gvr.Group) + "/")
	}
	b.WriteString(url.PathEscape(gvr.Version))
	if namespace != "" {
		b.WriteString("/namespaces/" + url.PathEscape(namespace))
	}
	b.WriteString("/" + url.PathEscape(gvr.Resource))
	if name != "" {
		b.WriteString("/" + url.PathEscape(name))
	}
	if rest != "" {
		b.WriteString("/" + rest)
	}
	return b.String()
}

// path is where the owned object is in its cluster, under the resource as the
// client spelt it.
func (o *owned) path(info *request.RequestInfo, rest string) string {
	return memberPath(requestedGVR(info), o.obj.Key.Namespace, o.obj.SourceName, rest)
}

// accept is what we ask a member for: bytes that can go into the cache.
func accept(res cache.Resource) string {
	if res.Encoding == cache.Protobuf {
		return protobufType + "," + jsonType
	}
	return jsonType
}

// send carries one request to the cluster. Of the client's headers only those
// that change nothing about the form of the body or the answer go along; the
// user agent names the field manager where no parameter does.
func (rt route) send(ctx context.Context, r *http.Request, q member.Request, contentType, acceptType string) (*member.Response, error) {
	q.Header = http.Header{}
	if agent := r.Header.Get("User-Agent"); agent != "" {
		q.Header.Set("User-Agent", agent)
	}
	if contentType != "" {
		q.Header.Set("Content-Type", contentType)
	}
	q.Header.Set("Accept", acceptType)
	q.User = rt.user
	return rt.transport.Do(ctx, q)
}
