package membercache

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Resources of the default configuration. Those from the control plane too are
// dual kinds, and Events.
var (
	Pods            = namespaced("", "pods", "Pod")
	Nodes           = clusterScoped("", "nodes", "Node")
	Events          = dual(namespaced("", "events", "Event"))
	EndpointSlices  = namespaced("discovery.k8s.io", "endpointslices", "EndpointSlice")
	Endpoints       = namespaced("", "endpoints", "Endpoints")
	ReplicaSets     = dual(namespaced("apps", "replicasets", "ReplicaSet"))
	Revisions       = dual(namespaced("apps", "controllerrevisions", "ControllerRevision"))
	Jobs            = dual(namespaced("batch", "jobs", "Job"))
	Claims          = dual(namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim"))
	Volumes         = dual(clusterScoped("", "persistentvolumes", "PersistentVolume"))
	defaultResource = []cache.Resource{
		Nodes, Pods, ReplicaSets, Revisions, Jobs, Claims, Volumes, EndpointSlices, Endpoints, Events,
	}
)

// DefaultResources are cached when nothing else is asked for.
func DefaultResources() []cache.Resource { return append([]cache.Resource(nil), defaultResource...) }

func namespaced(group, resource, kind string) cache.Resource {
	r := clusterScoped(group, resource, kind)
	r.Namespaced = true
	return r
}

func clusterScoped(group, resource, kind string) cache.Resource {
	return cache.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Kind:                 kind,
	}
}

func dual(r cache.Resource) cache.Resource {
	r.FromControlPlane = true
	return r
}

// managedResources are the kinds whose managed copies own other objects. Those
// that are cached themselves tell by that which copies there are.
var managedResources = []cache.Resource{
	namespaced("apps", "deployments", "Deployment"),
	namespaced("apps", "statefulsets", "StatefulSet"),
	namespaced("apps", "daemonsets", "DaemonSet"),
	namespaced("batch", "jobs", "Job"),
	namespaced("batch", "cronjobs", "CronJob"),
	namespaced("", "services", "Service"),
	namespaced("", "replicationcontrollers", "ReplicationController"),
}

// managed are the managed resources that need a feed of their own.
func (c *Cache) managed() []cache.Resource {
	var out []cache.Resource
	for _, res := range managedResources {
		if col, ok := c.byResource[res.GroupVersionResource]; !ok || !col.Resource().FromControlPlane {
			out = append(out, res)
		}
	}
	return out
}

// stageOf orders the feeds of a source: what others refer to comes first.
func stageOf(res cache.Resource) int {
	switch res.GroupVersionResource {
	case Nodes.GroupVersionResource:
		return 0
	case ReplicaSets.GroupVersionResource, Jobs.GroupVersionResource, Claims.GroupVersionResource, Volumes.GroupVersionResource:
		return 1
	case Pods.GroupVersionResource:
		return 2
	}
	return 3
}
