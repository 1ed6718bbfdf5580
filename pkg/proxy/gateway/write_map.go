package gateway

import (
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// errModified is the text by which clients know a lost race.
var errModified = errors.New(registry.OptimisticLockErrorMsg)

// identity relates an object as served to the same object in its cluster. The
// functions on it are pure: they change the document that they are given, and
// nothing else.
type identity struct {
	res        cache.Resource
	cluster    cache.ClusterName
	namespace  string
	servedName string
	sourceName string
	uid        types.UID
	servedRV   string
	sourceRV   string
	owners     []ownerPair
	node       renamed // Pod spec.nodeName
	involved   *involvedPair
	lists      []listPairs
}

// ownerPair is one owner on both sides.
type ownerPair struct{ served, source cache.OwnerRef }

// renamed is one name on both sides; both are empty where there is none.
type renamed struct{ served, source string }

type involvedPair struct {
	at             [][]string // where it may stand
	served, source ref
}

type ref struct {
	name string
	uid  types.UID
}

// identityOf reads the identity out of a cached object.
func (h *Handler) identityOf(res cache.Resource, obj *cache.Object) (*identity, error) {
	id := newIdentity(res, obj)
	if obj.Origin == nil {
		return id, nil
	}
	doc, err := h.served(res, obj.Raw())
	if err != nil {
		return nil, err
	}
	id.learnReferences(doc, obj.Origin)
	return id, nil
}

// newIdentity is the identity without the references.
func newIdentity(res cache.Resource, obj *cache.Object) *identity {
	return &identity{
		res: res, cluster: obj.Cluster, namespace: obj.Key.Namespace,
		servedName: obj.Key.Name, sourceName: obj.SourceName, uid: obj.UID,
		servedRV: formatRV(obj.RV), sourceRV: formatRV(obj.SourceRV),
	}
}

// learnReferences pairs the references as served with those of the source.
// They are in the same order, since serving replaces them in place.
func (id *identity) learnReferences(doc document, origin *cache.Origin) {
	refs := list(child(doc, "metadata"), "ownerReferences")
	if len(refs) == len(origin.Owners) {
		for i, item := range refs {
			if r, ok := item.(document); ok {
				id.owners = append(id.owners, ownerPair{served: ownerOf(r), source: origin.Owners[i]})
			}
		}
	}
	if origin.Node != "" {
		id.node = renamed{served: text(child(doc, "spec"), "nodeName"), source: origin.Node}
	}
	if origin.Others == nil {
		return
	}
	if involved := origin.Others.Involved; involved.Name != "" {
		id.involved = &involvedPair{at: [][]string{{"involvedObject"}, {"regarding"}}, source: ref{involved.Name, involved.UID}}
		if id.res.Kind == "PersistentVolume" {
			id.involved.at = [][]string{{"spec", "claimRef"}}
		}
		served := descend(doc, id.involved.at[0])
		id.involved.served = ref{text(served, "name"), types.UID(text(served, "uid"))}
	}
	id.lists = pairLists(id.res, doc, origin.Others.Lists)
}

// toSource maps an object or a patch that a client wrote to what the cluster
// is to be sent, and puts the UID in as a precondition.
func (id *identity) toSource(doc document) error {
	meta, err := metadataOf(doc)
	if err != nil {
		return err
	}
	if err := id.metadataToSource(meta); err != nil {
		return err
	}
	meta["uid"] = string(id.uid)
	mapOwners(meta, "ownerReferences", id.ownerInSource)
	mapOwners(meta, "$setElementOrder/ownerReferences", id.ownerInSource)
	id.referencesToSource(doc)
	return nil
}

// takeOffMarks removes what serving added. A patch that takes the marks off
// (null) changes nothing: they come back with every read.
func (id *identity) takeOffMarks(meta document) error {
	if labels, ok := meta["labels"].(document); ok {
		if named, ok := labels[cache.ClusterLabel].(string); ok && named != string(id.cluster) {
			return id.invalid(field.NewPath("metadata", "labels").Key(cache.ClusterLabel), named,
				fmt.Sprintf("the object is in cluster %q and cannot be moved", id.cluster))
		}
		delete(labels, cache.ClusterLabel)
	}
	if annotations, ok := meta["annotations"].(document); ok {
		delete(annotations, cache.OriginalNameAnnotation)
	}
	return nil
}

// metadataToSource takes off what the endpoint adds, puts in the name and the
// resourceVersion of the cluster, and refuses another object's UID.
func (id *identity) metadataToSource(meta document) error {
	if err := id.takeOffMarks(meta); err != nil {
		return err
	}
	if text(meta, "name") == id.servedName {
		meta["name"] = id.sourceName
	}
	if err := id.translateRV(meta); err != nil {
		return err
	}
	if given := text(meta, "uid"); given != "" && types.UID(given) != id.uid {
		return id.conflict(uidMismatch(types.UID(given), id.uid))
	}
	return nil
}

// translateRV replaces the resourceVersion as served by the cluster's own.
// Empty and "0" state no condition and stay.
func (id *identity) translateRV(at document) error {
	const key = "resourceVersion"
	switch given := at[key].(type) {
	case nil:
		return nil
	case string:
		switch given {
		case "", "0":
			return nil
		case id.servedRV:
			at[key] = id.sourceRV
			return nil
		}
		if _, err := strconv.ParseUint(given, 10, 64); err != nil {
			return id.invalid(field.NewPath("metadata", key), given, "must be a decimal number of at most 64 bits")
		}
		return id.conflict(errModified)
	default:
		return badRequest("metadata.%s must be a string", key)
	}
}

func ownerOf(r document) cache.OwnerRef {
	return cache.OwnerRef{
		APIVersion: text(r, "apiVersion"), Kind: text(r, "kind"),
		Name: text(r, "name"), UID: types.UID(text(r, "uid")),
	}
}

// mapOwners replaces the owners that find knows by UID.
func mapOwners(meta document, key string, find func(types.UID) (cache.OwnerRef, bool)) {
	for _, item := range list(meta, key) {
		r, ok := item.(document)
		if !ok {
			continue
		}
		owner, known := find(types.UID(text(r, "uid")))
		if !known {
			continue
		}
		r["uid"] = string(owner.UID)
		replaceIfSet(r, "name", owner.Name)
		replaceIfSet(r, "kind", owner.Kind)
		replaceIfSet(r, "apiVersion", owner.APIVersion)
	}
}

func (id *identity) ownerInSource(uid types.UID) (cache.OwnerRef, bool) {
	for _, p := range id.owners {
		if p.served.UID == uid {
			return p.source, true
		}
	}
	return cache.OwnerRef{}, false
}

func (id *identity) ownerAsServed(uid types.UID) (cache.OwnerRef, bool) {
	for _, p := range id.owners {
		if p.source.UID == uid {
			return p.served, true
		}
	}
	return cache.OwnerRef{}, false
}

func replaceIfSet(doc document, key, value string) {
	if _, ok := doc[key].(string); ok && value != "" {
		doc[key] = value
	}
}

func (id *identity) referencesToSource(doc document) {
	if spec := child(doc, "spec"); id.node.served != "" && text(spec, "nodeName") == id.node.served {
		spec["nodeName"] = id.node.source
	}
	for _, l := range id.lists {
		replaceTexts(doc, l.path, l.toSource)
	}
	if id.involved == nil {
		return
	}
	for _, path := range id.involved.at {
		id.involved.replace(descend(doc, path), id.involved.served, id.involved.source)
	}
}

// replace changes from into to where it stands.
func (p *involvedPair) replace(at document, from, to ref) {
	if text(at, "name") == from.name && from.name != "" {
		at["name"] = to.name
	}
	if types.UID(text(at, "uid")) == from.uid && from.uid != "" {
		at["uid"] = string(to.uid)
	}
}

// toServed maps an object that the cluster sent, but does not keep (a dry run,
// a deleted object), to how it would be served.
func (id *identity) toServed(doc document) {
	meta := child(doc, "metadata")
	if meta == nil {
		return
	}
	id.nameToServed(meta)
	if id.cluster != cache.ControlPlane {
		ensureChild(meta, "labels")[cache.ClusterLabel] = string(id.cluster)
		if id.servedName != id.sourceName {
			ensureChild(meta, "annotations")[cache.OriginalNameAnnotation] = id.sourceName
		}
	}
	mapOwners(meta, "ownerReferences", id.ownerAsServed)
	if spec := child(doc, "spec"); id.node.source != "" && text(spec, "nodeName") == id.node.source {
		spec["nodeName"] = id.node.served
	}
	for _, l := range id.lists {
		replaceTexts(doc, l.path, l.toServed)
	}
	if id.involved != nil {
		for _, path := range id.involved.at {
			id.involved.replace(descend(doc, path), id.involved.source, id.involved.served)
		}
	}
}

// nameToServed maps the metadata of what is about the object, but is not the
// object: a Scale, an Eviction.
func (id *identity) nameToServed(meta document) {
	if text(meta, "name") == id.sourceName {
		meta["name"] = id.servedName
	}
	if rv := text(meta, "resourceVersion"); rv != "" {
		meta["resourceVersion"] = id.servedRV
	}
}

func (id *identity) groupResource() schema.GroupResource { return id.res.GroupResource() }

func (id *identity) conflict(err error) error {
	return apierrors.NewConflict(id.groupResource(), id.servedName, err)
}

func (id *identity) invalid(path *field.Path, value any, detail string) error {
	kind := schema.GroupKind{Group: id.res.Group, Kind: id.res.Kind}
	return apierrors.NewInvalid(kind, id.servedName, field.ErrorList{field.Invalid(path, value, detail)})
}

// metadataOf finds the metadata of a document, or makes it.
func metadataOf(doc document) (document, error) {
	switch meta := doc["metadata"].(type) {
	case document:
		if meta == nil {
			break
		}
		return meta, nil
	case nil:
	default:
		return nil, badRequest("metadata must be an object")
	}
	meta := document{}
	doc["metadata"] = meta
	return meta, nil
}

// child is an object inside an object; nil when there is none. Reading from a
// nil map is fine, so chains need no checks.
func child(doc document, key string) document {
	c, _ := doc[key].(document)
	return c
}

func ensureChild(doc document, key string) document {
	c := child(doc, key)
	if c == nil {
		c = document{}
		doc[key] = c
	}
	return c
}

func text(doc document, key string) string {
	s, _ := doc[key].(string)
	return s
}

func list(doc document, key string) []any {
	l, _ := doc[key].([]any)
	return l
}
