package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// Resource is one kind of --member-resources.
type Resource struct {
	cache.Resource
	// Off takes a kind out that is cached by default.
	Off bool
}

// ParseResources reads --member-resources: RESOURCE.VERSION.GROUP=Kind, with
// ":cluster" behind it for a kind without namespaces, ":dual" for one of which
// the control plane holds objects too, and ":off" for one that is not to be
// cached though it is by default.
func ParseResources(values []string) ([]Resource, error) {
	found := map[schema.GroupVersionResource]Resource{}
	for _, v := range values {
		name, rest, _ := strings.Cut(v, "=")
		gvr, _ := schema.ParseResourceArg(name)
		kind, options, _ := strings.Cut(rest, ":")
		if gvr == nil || kind == "" {
			return nil, fmt.Errorf("--member-resources %q: write RESOURCE.VERSION.GROUP=Kind, for instance widgets.v1.example.com=Widget or csinodes.v1.storage.k8s.io=CSINode:cluster", v)
		}
		r := Resource{Resource: cache.Resource{GroupVersionResource: *gvr, Kind: kind, Namespaced: true, Encoding: cache.JSON}}
		if legacyscheme.Scheme.Recognizes(gvr.GroupVersion().WithKind(kind)) {
			r.Encoding = cache.Protobuf
		}
		for option := range strings.SplitSeq(options, ":") {
			switch option {
			case "":
			case "cluster":
				r.Namespaced = false
			case "dual":
				r.FromControlPlane = true
			case "off":
				r.Off = true
			default:
				return nil, fmt.Errorf("--member-resources %q: %q is none of cluster, dual and off", v, option)
			}
		}
		found[*gvr] = r
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Resource) int {
		return strings.Compare(a.String(), b.String())
	}), nil
}

// with is the default resources as changed by what was asked for.
func with(defaults []cache.Resource, asked []Resource) []cache.Resource {
	out := slices.DeleteFunc(defaults, func(d cache.Resource) bool {
		return slices.ContainsFunc(asked, func(a Resource) bool { return a.GroupVersionResource == d.GroupVersionResource })
	})
	for _, a := range asked {
		if !a.Off {
			out = append(out, a.Resource)
		}
	}
	return out
}

// Classes is the table that routes requests.
func Classes(asked []Resource) map[schema.GroupResource]proxy.Class {
	classes := proxy.DefaultClasses()
	for _, r := range asked {
		switch {
		case r.Off:
			delete(classes, r.GroupResource())
		case r.FromControlPlane:
			classes[r.GroupResource()] = proxy.Dual
		default:
			classes[r.GroupResource()] = proxy.Member
		}
	}
	return classes
}

// Custom are the kinds that are no built-in ones, whose definitions come from
// the members.
func Custom(asked []Resource) (out []schema.GroupVersionResource) {
	for _, r := range asked {
		if !r.Off && !legacyscheme.Scheme.IsGroupRegistered(r.Group) {
			out = append(out, r.GroupVersionResource)
		}
	}
	return out
}
