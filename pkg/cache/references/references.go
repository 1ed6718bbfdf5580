// Package references decides to what the references of a member's object lead
// in the merged view: Node names as served, and the control plane's owners in
// the place of a member's.
//
//	bytes -> Read -> Origin (as in the source)
//	Origin, Index -> Edits (as served)
//	marks, owners -> Classify: is a member's object a copy that is not served?
//
// Everything here is a pure function but Index, which is a table with a lock.
package references

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Names finds the name under which an object of a member is served.
type Names interface {
	ServedName(cluster cache.ClusterName, namespace, sourceName string) string
}

// Owners finds the control plane's object in whose place a member's stands.
type Owners interface {
	Owner(cluster cache.ClusterName, uid types.UID) (Target, bool)
}

// Target is an object of the control plane.
type Target struct {
	Name string
	UID  types.UID
}

// Lookup is all that references resolve against. Pods, Nodes and Renames may
// be nil.
type Lookup struct {
	Owners
	Pods, Nodes Names
	// Renames knows the names of all other kinds.
	Renames *Renames
	// Table lists the references of the kind that is looked up for.
	Table *Table
}

// served is the name under which an object of any kind is served.
func (look Lookup) served(cluster cache.ClusterName, kind Kind, namespace, name string) string {
	switch {
	case kind == podKind && look.Pods != nil:
		return look.Pods.ServedName(cluster, namespace, name)
	case kind == nodeKind && look.Nodes != nil:
		return look.Nodes.ServedName(cluster, "", name)
	case look.Renames != nil:
		return look.Renames.ServedName(cluster, kind, cache.Key{Namespace: namespace, Name: name})
	}
	return name
}

// Read reads the references of an object; nil where it has none. The strings
// are the caller's own.
func Read(res cache.Resource, raw []byte, meta *wire.Meta) (*cache.Origin, error) {
	var o cache.Origin
	for _, r := range meta.Owners {
		o.Owners = append(o.Owners, cache.OwnerRef{
			APIVersion: intern(r.APIVersion), Kind: intern(r.Kind), Name: intern(r.Name),
			UID: types.UID(intern(string(r.UID))), Controller: r.Controller,
		})
	}
	if res.Group == "" && res.Kind == "Pod" {
		node, err := wire.Text(res.Encoding, raw, wire.PodNodeName)
		if err != nil {
			return nil, err
		}
		o.Node = intern(node)
	}
	others, err := TableOf(res).read(res.Encoding, raw)
	if err != nil {
		return nil, err
	}
	o.Others = others
	if o.Node == "" && o.Owners == nil && o.Others == nil {
		return nil, nil
	}
	return &o, nil
}

func (p *About) read(enc cache.Encoding, raw []byte) (ref cache.InvolvedRef, err error) {
	var values [5]string
	for i, p := range []wire.Path{p.APIVersion, p.Kind, p.Namespace, p.Name, p.UID} {
		v, err := wire.Text(enc, raw, p)
		if err != nil {
			return ref, err
		}
		values[i] = intern(v)
	}
	if values[3] == "" {
		return ref, nil
	}
	return cache.InvolvedRef{APIVersion: values[0], Kind: values[1], Namespace: values[2], Name: values[3], UID: types.UID(values[4])}, nil
}

// Apply puts the served references into an edit. All of them are written, so
// that the edit holds for the bytes of the source and for those served before.
func Apply(edit *wire.Edit, cluster cache.ClusterName, namespace string, o *cache.Origin, look Lookup) {
	if o == nil || cluster == cache.ControlPlane {
		return
	}
	for i, r := range o.Owners {
		var name string
		uid := r.UID
		if t, ok := look.Owner(cluster, r.UID); ok {
			name, uid = t.Name, t.UID
		} else {
			name = look.served(cluster, KindOf(r.APIVersion, r.Kind), namespace, r.Name)
		}
		edit.Owners = append(edit.Owners, wire.OwnerEdit{Index: i, Name: name, UID: string(uid)})
	}
	if o.Node != "" && look.Nodes != nil {
		edit.Texts = append(edit.Texts, wire.TextEdit{Path: wire.PodNodeName, Value: look.Nodes.ServedName(cluster, "", o.Node)})
	}
	if o.Others == nil || look.Table == nil {
		return
	}
	if o.Others.Involved.Name != "" {
		name, uid := involved(cluster, &o.Others.Involved, look)
		edit.Texts = append(edit.Texts,
			wire.TextEdit{Path: look.Table.About.Name, Value: name},
			wire.TextEdit{Path: look.Table.About.UID, Value: uid})
	}
	for i, names := range o.Others.Lists {
		if names == nil {
			continue
		}
		to := look.Table.Lists[i].To
		values := make([]string, len(names))
		for j, name := range names {
			if name != "" {
				values[j] = look.served(cluster, to, namespace, name)
			}
		}
		edit.Lists = append(edit.Lists, wire.ListEdit{Path: look.Table.Lists[i].Path, Values: values})
	}
}

func involved(cluster cache.ClusterName, r *cache.InvolvedRef, look Lookup) (name, uid string) {
	uid = string(r.UID)
	kind := KindOf(r.APIVersion, r.Kind)
	if r.UID != "" && kind != podKind && kind != nodeKind {
		if t, ok := look.Owner(cluster, r.UID); ok {
			return t.Name, string(t.UID)
		}
	}
	name = look.served(cluster, kind, r.Namespace, r.Name)
	if kind == nodeKind && uid == r.Name {
		uid = name // a kubelet writes the Node's name where the UID belongs
	}
	return name, uid
}

// Mark tells whether an object is a managed copy, and of which template. A mark
// that does not name the object itself was inherited and does not count.
func Mark(gvk schema.GroupVersionKind, meta *wire.Meta) (Target, bool) {
	if v, ok := meta.Label(cache.ManagedLabel); !ok || v != "true" {
		return Target{}, false
	}
	uid, ok := meta.Annotation(cache.TemplateUIDAnnotation)
	if !ok || uid == "" {
		return Target{}, false
	}
	own, _ := meta.Annotation(cache.TemplateAnnotation)
	if !namesItself(own, gvk, meta) {
		return Target{}, false
	}
	return Target{Name: strings.Clone(meta.Name), UID: types.UID(strings.Clone(uid))}, true
}

// namesItself compares "GROUP/VERSION/KIND/NAMESPACE/NAME" with an object; the
// version may differ, since a copy is read in whatever version is asked for.
func namesItself(mark string, gvk schema.GroupVersionKind, meta *wire.Meta) bool {
	parts := strings.Split(mark, "/")
	if len(parts) != 5 {
		return false
	}
	group := parts[0]
	if group == "core" {
		group = ""
	}
	return group == gvk.Group && parts[2] == gvk.Kind && parts[3] == meta.Namespace && parts[4] == meta.Name
}

// Classify decides whether a member's object stands for one of the control
// plane and is therefore not served: a managed copy of a dual kind, a ReplicaSet
// with a revision stamp that a managed copy controls, or a ControllerRevision
// that one controls.
func Classify(res cache.Resource, cluster cache.ClusterName, meta *wire.Meta, owners Owners) (Target, bool) {
	if cluster == cache.ControlPlane || !res.FromControlPlane || res.Kind == "Event" {
		return Target{}, false
	}
	if t, ok := Mark(res.GroupVersion().WithKind(res.Kind), meta); ok {
		return t, true
	}
	stamp, _ := meta.Annotation(cache.RevisionAnnotation)
	name, uid, ok := strings.Cut(stamp, "/")
	if KindOfResource(res) == historyKind {
		name, uid, ok = meta.Name, meta.UID, true // nothing refers to it but a label
	}
	if !ok || name == "" || uid == "" {
		return Target{}, false
	}
	for _, o := range meta.Owners {
		if !o.Controller {
			continue
		}
		if _, ok := owners.Owner(cluster, o.UID); ok {
			return Target{Name: strings.Clone(name), UID: types.UID(strings.Clone(uid))}, true
		}
	}
	return Target{}, false
}

// historyKind holds the revisions of StatefulSets and DaemonSets. Those of a
// managed copy are the member's view of the template's own.
const historyKind Kind = "apps/ControllerRevision"

// Restore puts the source's own references into an edit.
func Restore(edit *wire.Edit, table *Table, o *cache.Origin) {
	if o == nil {
		return
	}
	for i, r := range o.Owners {
		edit.Owners = append(edit.Owners, wire.OwnerEdit{Index: i, Name: r.Name, UID: string(r.UID)})
	}
	if o.Node != "" {
		edit.Texts = append(edit.Texts, wire.TextEdit{Path: wire.PodNodeName, Value: o.Node})
	}
	if o.Others == nil || table == nil {
		return
	}
	if o.Others.Involved.Name != "" {
		edit.Texts = append(edit.Texts,
			wire.TextEdit{Path: table.About.Name, Value: o.Others.Involved.Name},
			wire.TextEdit{Path: table.About.UID, Value: string(o.Others.Involved.UID)})
	}
	for i, names := range o.Others.Lists {
		if names != nil {
			edit.Lists = append(edit.Lists, wire.ListEdit{Path: table.Lists[i].Path, Values: names})
		}
	}
}
