package merge

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
)

// Changes names what references may lead elsewhere in one cluster.
type Changes struct {
	Owners map[types.UID]struct{}
	Pods   map[cache.Key]struct{}        // in the source
	Nodes  map[string]struct{}           // in the source
	Others map[references.Named]struct{} // in the source
}

// named says whether an object is served under another name now.
func (ch Changes) named(kind references.Kind, namespace, name string) bool {
	key := cache.Key{Namespace: namespace, Name: name}
	switch kind {
	case "/Node":
		_, changed := ch.Nodes[name]
		return changed
	case "/Pod":
		_, changed := ch.Pods[key]
		return changed
	}
	_, changed := ch.Others[references.Named{Kind: kind, Key: key}]
	if !changed && namespace != "" { // a namespaced object may refer to one without
		_, changed = ch.Others[references.Named{Kind: kind, Key: cache.Key{Name: name}}]
	}
	return changed
}

// touch says whether an object refers to something that changed.
func (ch Changes) touch(table *references.Table, obj *cache.Object) bool {
	o := obj.Origin
	if o == nil {
		return false
	}
	if o.Node != "" && ch.named("/Node", "", o.Node) {
		return true
	}
	for _, r := range o.Owners {
		if _, ok := ch.Owners[r.UID]; ok || ch.named(references.KindOf(r.APIVersion, r.Kind), obj.Key.Namespace, r.Name) {
			return true
		}
	}
	if o.Others == nil {
		return false
	}
	if v := o.Others.Involved; v.Name != "" {
		if _, ok := ch.Owners[v.UID]; ok || ch.named(references.KindOf(v.APIVersion, v.Kind), v.Namespace, v.Name) {
			return true
		}
	}
	for i, names := range o.Others.Lists {
		for _, name := range names {
			if name != "" && ch.named(table.Lists[i].To, obj.Key.Namespace, name) {
				return true
			}
		}
	}
	return false
}
