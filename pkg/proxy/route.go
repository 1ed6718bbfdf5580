// Package proxy decides where a request goes, inside the handler chain of the
// embedded control plane, after authentication, audit, flow control and
// authorization:
//
//	RequestInfo -> Decide -> control plane | member gateway | one member's API
//
// The decision is a pure function of the request and of the table of kinds.
// Loopback clients of the embedded chain always go to the control plane.
package proxy

import (
	"maps"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Class says who holds the objects of a kind.
type Class uint8

const (
	// Federated kinds are the control plane's (the default).
	Federated Class = iota
	// Member kinds are read merged from the members and written to the owner.
	Member
	// Dual kinds are the control plane's templates together with member
	// objects that are not managed copies.
	Dual
	// Live kinds are asked of the members at each request, never cached.
	Live
)

// Kinds is the table of classes. It is replaced whole when member CRDs are
// imported; readers see one consistent table.
type Kinds struct {
	table atomic.Pointer[map[schema.GroupResource]Class]
}

// NewKinds makes a table.
func NewKinds(classes map[schema.GroupResource]Class) *Kinds {
	k := &Kinds{}
	k.Replace(classes)
	return k
}

// Replace sets the whole table.
func (k *Kinds) Replace(classes map[schema.GroupResource]Class) {
	table := make(map[schema.GroupResource]Class, len(classes))
	maps.Copy(table, classes)
	k.table.Store(&table)
}

// Class of a resource.
func (k *Kinds) Class(gr schema.GroupResource) Class { return (*k.table.Load())[gr] }

// DefaultClasses are the classes of the built-in kinds.
func DefaultClasses() map[schema.GroupResource]Class {
	return map[schema.GroupResource]Class{
		{Resource: "pods"}:                                      Member,
		{Resource: "nodes"}:                                     Member,
		{Resource: "events"}:                                    Member,
		{Group: "events.k8s.io", Resource: "events"}:            Member,
		{Resource: "endpoints"}:                                 Member,
		{Group: "discovery.k8s.io", Resource: "endpointslices"}: Member,
		{Group: "apps", Resource: "replicasets"}:                Dual,
		{Group: "apps", Resource: "controllerrevisions"}:        Dual,
		{Group: "batch", Resource: "jobs"}:                      Dual,
		{Resource: "persistentvolumeclaims"}:                    Dual,
		{Resource: "persistentvolumes"}:                         Dual,
		{Group: "metrics.k8s.io", Resource: "pods"}:             Live,
		{Group: "metrics.k8s.io", Resource: "nodes"}:            Live,
	}
}

// Target is where a request goes.
type Target uint8

const (
	// ToControlPlane: the embedded registry.
	ToControlPlane Target = iota
	// ToGateway: the handler of member and dual kinds.
	ToGateway
	// ToCluster: one member's API, direct.
	ToCluster
)

// Destination is a decision. Cluster and Path are set for ToCluster.
type Destination struct {
	Target  Target
	Cluster string
	// Path begins with a slash.
	Path string
}

// clusters is the resource whose proxy subresource reaches a member.
var clusters = schema.GroupResource{Group: "cluster.karmada.io", Resource: "clusters"}

// Decide says where a request goes. loopback is set for requests of the
// embedded chain's own clients.
func Decide(info *request.RequestInfo, kinds *Kinds, loopback bool) Destination {
	if info == nil || !info.IsResourceRequest {
		return Destination{}
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if gr == clusters && info.Subresource == "proxy" && info.Name != "" {
		return Destination{Target: ToCluster, Cluster: info.Name, Path: proxyPath(info)}
	}
	if loopback || kinds.Class(gr) == Federated {
		return Destination{}
	}
	return Destination{Target: ToGateway}
}

// proxyPath is what follows .../clusters/NAME/proxy in the request path, taken
// from the path itself so that a trailing slash survives.
func proxyPath(info *request.RequestInfo) string {
	marker := "/clusters/" + info.Name + "/proxy"
	_, rest, found := strings.Cut(info.Path, marker)
	if !found || rest == "" {
		return "/"
	}
	return rest
}
