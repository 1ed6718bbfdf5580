package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// wish is one reason for a new object to be in a cluster.
type wish struct {
	cluster cache.ClusterName
	path    *field.Path
	value   string
}

// agree is the cluster that all wishes name. Two that differ are an error.
func agree(kind schema.GroupKind, name string, wishes []wish) (cache.ClusterName, bool, error) {
	if len(wishes) == 0 {
		return "", false, nil
	}
	first := wishes[0]
	for _, w := range wishes[1:] {
		if w.cluster != first.cluster {
			return "", false, apierrors.NewInvalid(kind, name, field.ErrorList{field.Invalid(w.path, w.value,
				fmt.Sprintf("is in %s, but %s says %s", clusterText(w.cluster), first.path, clusterText(first.cluster)))})
		}
	}
	return first.cluster, true, nil
}

func clusterText(name cache.ClusterName) string {
	if name == cache.ControlPlane {
		return "the control plane"
	}
	return fmt.Sprintf("cluster %q", string(name))
}

// place chooses the cluster of a new object, and gives its references the
// names that they have there.
//
//	dual kind                      -> control plane
//	label, node, owner, regarding  -> the cluster that they name
//	Event about nothing known      -> control plane
//	namespaced                     -> cluster that has the name reserved, else
//	                                  the ready one with the fewest Pods
//	cluster-scoped                 -> refused: the label is needed
//
// It is free when nothing but the number of Pods decided.
//
// None of barred is chosen, and who names one is refused.
func (h *Handler) place(ctx context.Context, info *request.RequestInfo, c cache.Collection, doc document, barred []cache.ClusterName) (cluster cache.ClusterName, free bool, err error) {
	res := c.Resource()
	gk := schema.GroupKind{Group: res.Group, Kind: res.Kind}
	name := text(child(doc, "metadata"), "name")
	label, labelled := child(child(doc, "metadata"), "labels")[cache.ClusterLabel]
	isEvent := res.Resource == "events"
	if res.FromControlPlane && !isEvent {
		if labelled {
			return "", false, invalidLabel(gk, name, label, "objects of this kind are created in the control plane, whose policies place them")
		}
		return cache.ControlPlane, false, nil
	}
	wishes, err := h.wishes(ctx, info, doc, isEvent)
	if err != nil {
		return "", false, err
	}
	if labelled {
		named, err := h.labelWish(gk, name, label)
		if err != nil {
			return "", false, err
		}
		wishes = append([]wish{named}, wishes...)
	}
	cluster, settled, err := agree(gk, name, wishes)
	switch {
	case err != nil:
		return "", false, err
	case settled && cluster == cache.ControlPlane && !res.FromControlPlane:
		return "", false, apierrors.NewInvalid(gk, name, field.ErrorList{field.Invalid(wishes[0].path, wishes[0].value,
			"is in the control plane, where objects of this kind cannot be: the garbage collector of a cluster would not find it")})
	case settled && slices.Contains(barred, cluster):
		return "", false, notAllowed(info, name, cluster)
	case settled:
		return cluster, false, nil
	case isEvent:
		return cache.ControlPlane, false, nil
	case !res.Namespaced:
		return "", false, invalidLabel(gk, name, "", "names the cluster of a new object of this kind and is required")
	}
	if holder, held := c.Holder(cache.Key{Namespace: info.Namespace, Name: name}); held && name != "" && holder != cache.ControlPlane {
		if slices.Contains(barred, holder) {
			return "", false, notAllowed(info, name, holder)
		}
		return holder, false, nil
	}
	cluster, err = h.leastLoaded(barred)
	return cluster, true, err
}

func invalidLabel(gk schema.GroupKind, name string, value any, detail string) error {
	path := field.NewPath("metadata", "labels").Key(cache.ClusterLabel)
	if value == "" {
		return apierrors.NewInvalid(gk, name, field.ErrorList{field.Required(path, detail)})
	}
	return apierrors.NewInvalid(gk, name, field.ErrorList{field.Invalid(path, value, detail)})
}

func (h *Handler) labelWish(gk schema.GroupKind, name string, label any) (wish, error) {
	value, _ := label.(string)
	m, ok := h.Members.Get(cache.ClusterName(value))
	if !ok || value == "" {
		return wish{}, invalidLabel(gk, name, label, "is not the name of a cluster")
	}
	return wish{cluster: m.Name, path: field.NewPath("metadata", "labels").Key(cache.ClusterLabel), value: value}, nil
}

// wishes collects what the references of an object say about its cluster, and
// maps them.
func (h *Handler) wishes(ctx context.Context, info *request.RequestInfo, doc document, isEvent bool) ([]wish, error) {
	var out []wish
	if node := text(child(doc, "spec"), "nodeName"); node != "" && info.Resource == "pods" {
		obj, err := h.nodeNamed(ctx, node)
		if err != nil {
			return nil, err
		}
		if obj != nil {
			child(doc, "spec")["nodeName"] = obj.SourceName
			out = append(out, wish{obj.Cluster, field.NewPath("spec", "nodeName"), node})
		}
	}
	out = append(out, h.ownerWishes(ctx, info, doc, nil)...)
	if !isEvent {
		return out, nil
	}
	for _, key := range []string{"involvedObject", "regarding"} {
		about := child(doc, key)
		if obj := h.referent(ctx, about, text(about, "namespace")); obj != nil {
			about["name"] = obj.SourceName
			out = append(out, wish{obj.Cluster, field.NewPath(key), obj.Key.Name})
		}
	}
	return out, nil
}

// ownerWishes says where the owners in a document are, those that known does
// not know, and gives them the names that they have there.
func (h *Handler) ownerWishes(ctx context.Context, info *request.RequestInfo, doc document, known func(types.UID) bool) []wish {
	var out []wish
	for i, item := range list(child(doc, "metadata"), "ownerReferences") {
		owner, ok := item.(document)
		if !ok || known != nil && known(types.UID(text(owner, "uid"))) {
			continue
		}
		if obj := h.referent(ctx, owner, info.Namespace); obj != nil {
			owner["name"] = obj.SourceName
			out = append(out, wish{obj.Cluster, field.NewPath("metadata", "ownerReferences").Index(i), obj.Key.Name})
		}
	}
	return out
}

// adopt maps the owners that a write adds to an object. One that lives
// elsewhere is refused: the garbage collector of the object's cluster would not
// find it, and delete the object.
func (h *Handler) adopt(ctx context.Context, info *request.RequestInfo, id *identity, doc document) error {
	known := func(uid types.UID) bool {
		_, asServed := id.ownerInSource(uid)
		_, inSource := id.ownerAsServed(uid)
		return asServed || inSource
	}
	for _, w := range h.ownerWishes(ctx, info, doc, known) {
		if w.cluster != id.cluster {
			return id.invalid(w.path, w.value, fmt.Sprintf("is in %s, the object in %s", clusterText(w.cluster), clusterText(id.cluster)))
		}
	}
	return nil
}

// referent finds what a reference (apiVersion, kind, name, uid) means among
// the cached kinds; nil when it means something else. A UID that differs means
// another object.
func (h *Handler) referent(ctx context.Context, r document, namespace string) *cache.Object {
	gv, err := schema.ParseGroupVersion(text(r, "apiVersion"))
	if err != nil || text(r, "name") == "" {
		return nil
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gv.WithKind(text(r, "kind")))
	c, ok := h.Cache.Collection(canonical(gvr))
	if !ok {
		return nil
	}
	key := cache.Key{Name: text(r, "name")}
	if c.Resource().Namespaced {
		key.Namespace = namespace
	}
	obj, err := c.Get(ctx, key, cache.Version{})
	if err != nil {
		return nil
	}
	if uid := types.UID(text(r, "uid")); uid != "" && uid != obj.UID {
		return nil
	}
	return obj
}

// nodeNamed finds a Node by its name as served; nil when there is none.
func (h *Handler) nodeNamed(ctx context.Context, name string) (*cache.Object, error) {
	c, ok := h.Cache.Collection(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	if !ok {
		return nil, nil
	}
	obj, err := c.Get(ctx, cache.Key{Name: name}, cache.Version{})
	if errors.Is(err, cache.ErrNotFound) {
		return nil, nil
	}
	return obj, err
}

// leastLoaded is the ready member with the fewest Pods, the first in join
// order among equals. One that does not answer the cache at the moment, though
// it still counts as ready, is only taken when there is no other; those in
// tried are not taken at all.
func (h *Handler) leastLoaded(tried []cache.ClusterName) (cache.ClusterName, error) {
	var objects map[cache.ClusterName]int
	silent := map[cache.ClusterName]bool{}
	if pods, ok := h.Cache.Collection(schema.GroupVersionResource{Version: "v1", Resource: "pods"}); ok {
		objects = pods.Stats().Objects
		for _, g := range pods.Gaps() {
			silent[g.Cluster] = true
		}
	}
	best, found := cache.ClusterName(""), false
	var unready []string
	for _, m := range h.Members.List() {
		silent[m.Name] = silent[m.Name] || h.transports.Silent(m.Name)
		switch {
		case m.Name == cache.ControlPlane || slices.Contains(tried, m.Name):
		case !m.Ready:
			unready = append(unready, string(m.Name))
		case !found || silent[best] && !silent[m.Name],
			silent[best] == silent[m.Name] && objects[m.Name] < objects[best]:
			best, found = m.Name, true
		}
	}
	if found {
		return best, nil
	}
	message := "no cluster is ready"
	if len(unready) > 0 {
		message += ": " + sanitize(strings.Join(unready, ", "), maxWarning)
	}
	return "", unavailable(message, nil)
}
