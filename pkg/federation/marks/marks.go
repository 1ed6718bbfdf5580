// Package marks is what the engine writes on a managed copy so that it can be
// recognised again: by the engine after a restart, by the gateway that hides
// copies behind their templates, and by an administrator.
//
// A mark counts only where it matches the object that carries it. An object
// that was cloned from a copy, or that inherited its annotations, is foreign.
package marks

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Keys of labels and annotations.
const (
	// Managed is the label of every managed copy, value "true".
	Managed = "isthmus.dev/managed"
	// ManagedSelector selects managed copies.
	ManagedSelector = Managed + "=true"

	// ControlPlane holds the id of the control plane that manages the copy.
	ControlPlane = "isthmus.dev/control-plane"
	// TemplateUID holds the UID of the template.
	TemplateUID = "isthmus.dev/template-uid"
	// Template holds Key.String of the copy.
	Template = "isthmus.dev/template"
	// TemplateRevision holds the resourceVersion of the template at the time
	// of the write. It changes with writes only, never causes one.
	TemplateRevision = "isthmus.dev/template-revision"
	// Epoch holds the epoch of the leader that wrote.
	Epoch = "isthmus.dev/epoch"
	// Revision holds "NAME/UID" of the control plane's ReplicaSet that stands
	// for the copy's pod template.
	Revision = "isthmus.dev/revision"

	// Hold, on a template or on a copy, keeps the engine from writing.
	Hold = "isthmus.dev/hold"
	// QuotaWanted and the name of a cluster, on the binding of a ResourceQuota:
	// what a request has been refused for there, and when.
	QuotaWanted = "quota-wanted.isthmus.dev/"

	// Finalizer keeps a template until the copies in reachable members are gone.
	Finalizer = "isthmus.dev/propagation"

	// BindingID is the label, on binding and copies, that ties them together.
	BindingID = "resourcebinding.karmada.io/permanent-id"
	// ClusterBindingID is BindingID for cluster-scoped templates.
	ClusterBindingID = "clusterresourcebinding.karmada.io/permanent-id"
)

// Field managers.
const (
	// Manager owns what the template says, in members and on bindings.
	Manager = "isthmus"
	// ReplicasManager owns spec.replicas in members, unless an autoscaler does.
	ReplicasManager = "isthmus-replicas"
	// StatusManager owns the status of templates.
	StatusManager = "isthmus-status"
)

// Prefix is the domain of our own labels and annotations.
const Prefix = "isthmus.dev/"

// Key names a template, and a copy in the same words.
type Key struct {
	schema.GroupVersionKind
	Namespace, Name string
}

// String is "GROUP/VERSION/KIND/NAMESPACE/NAME", with "core" for the core
// group and an empty namespace for cluster-scoped objects.
func (k Key) String() string {
	group := k.Group
	if group == "" {
		group = "core"
	}
	return strings.Join([]string{group, k.Version, k.Kind, k.Namespace, k.Name}, "/")
}

// ParseKey reads what Key.String wrote.
func ParseKey(s string) (Key, error) {
	p := strings.Split(s, "/")
	if len(p) != 5 || p[0] == "" || p[1] == "" || p[2] == "" || p[4] == "" {
		return Key{}, fmt.Errorf("template mark %q is not GROUP/VERSION/KIND/NAMESPACE/NAME", s)
	}
	if p[0] == "core" {
		p[0] = ""
	}
	return Key{
		GroupVersionKind: schema.GroupVersionKind{Group: p[0], Version: p[1], Kind: p[2]},
		Namespace:        p[3],
		Name:             p[4],
	}, nil
}

// SameObject says whether two keys name one object: the version of the API is
// a way to speak of it, not a part of its identity.
func (k Key) SameObject(o Key) bool {
	return k.Group == o.Group && k.Kind == o.Kind && k.Namespace == o.Namespace && k.Name == o.Name
}

// Set is the marks of one copy.
type Set struct {
	ControlPlane     string
	Template         Key
	TemplateUID      types.UID
	TemplateRevision string
	Epoch            int64
	// BindingID may be empty.
	BindingID string
	// Revision is "NAME/UID", empty for kinds without revisions.
	Revision string
}

// Labels that the set puts on a copy.
func (s Set) Labels() map[string]string {
	l := map[string]string{Managed: "true"}
	if s.BindingID != "" {
		if s.Template.Namespace == "" {
			l[ClusterBindingID] = s.BindingID
		} else {
			l[BindingID] = s.BindingID
		}
	}
	return l
}

// Annotations that the set puts on a copy.
func (s Set) Annotations() map[string]string {
	a := map[string]string{
		ControlPlane: s.ControlPlane,
		Template:     s.Template.String(),
		TemplateUID:  string(s.TemplateUID),
	}
	if s.Revision != "" {
		a[Revision] = s.Revision
	}
	return a
}

// Provenance is the annotations that say what a write was based on. They are
// kept apart because they never are the reason for a write.
func (s Set) Provenance() map[string]string {
	return map[string]string{
		TemplateRevision: s.TemplateRevision,
		Epoch:            strconv.FormatInt(s.Epoch, 10),
	}
}

// Owned says whether the object with this key, these labels and annotations is
// a copy managed by the given control plane.
func Owned(controlPlane string, key Key, labels, annotations map[string]string) bool {
	if labels[Managed] != "true" || annotations[ControlPlane] != controlPlane || controlPlane == "" {
		return false
	}
	marked, err := ParseKey(annotations[Template])
	return err == nil && marked.SameObject(key)
}
