package adoption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Errors of the commands.
var (
	ErrUnknownKind = errors.New("no kind of that name is served")
	ErrNotThere    = errors.New("there is no such object in any of the clusters")
	ErrIncomplete  = errors.New("not everything was taken over")
)

// order in which kinds are taken over: what others need comes first. These are
// the kinds of a namespace that are adopted when none is named.
var order = []schema.GroupKind{
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
	{Kind: "ConfigMap"},
	{Kind: "Secret"},
	{Kind: "ServiceAccount"},
	{Kind: "PersistentVolumeClaim"},
	{Kind: "Service"},
	{Group: "networking.k8s.io", Kind: "Ingress"},
	{Group: "apps", Kind: "Deployment"},
	{Group: "apps", Kind: "StatefulSet"},
	{Group: "apps", Kind: "DaemonSet"},
	{Group: "batch", Kind: "Job"},
	{Group: "batch", Kind: "CronJob"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
}

var crdKind = order[0]

func rank(gk schema.GroupKind) int {
	if i := slices.Index(order, gk); i >= 0 {
		return i
	}
	return len(order)
}

// item is one object, with its copies by cluster.
type item struct {
	kind
	namespace, name string
	copies          []adopt.Copy
	// managed: taken over before; only what it contains is of interest.
	managed bool
}

func (i *item) String() string {
	group := ""
	if i.Group != "" {
		group = "." + i.Group
	}
	return strings.ToLower(i.Kind) + group + "/" + i.name
}

// resolve finds the kind that a word means: KIND, RESOURCE or a short name, with
// or without ".GROUP".
func resolve(kinds []kind, word string) (kind, error) {
	word = strings.ToLower(word)
	name, group, qualified := strings.Cut(word, ".")
	best, found := kind{}, false
	for _, k := range kinds {
		if qualified && k.Group != group {
			continue
		}
		if name != strings.ToLower(k.Kind) && name != k.resource && name != k.singular && !slices.Contains(k.short, name) {
			continue
		}
		if !found || rank(k.GroupKind()) < rank(best.GroupKind()) {
			best, found = k, true
		}
	}
	if !found {
		return kind{}, fmt.Errorf("%w: %q", ErrUnknownKind, word)
	}
	return best, nil
}

const managedAlready = "it is managed already"

// unfit says why an object cannot be taken over; empty when it can.
func unfit(u *unstructured.Unstructured) string {
	secretType, _, _ := unstructured.NestedString(u.Object, "type")
	gk := u.GroupVersionKind().GroupKind()
	if why, no := intent.Forbidden(gk, u, secretType); no {
		return why
	}
	key := marks.Key{GroupVersionKind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
	if other := u.GetAnnotations()[marks.ControlPlane]; marks.Owned(other, key, u.GetLabels(), u.GetAnnotations()) {
		return managedAlready
	}
	if c := metav1.GetControllerOf(u); c != nil {
		return fmt.Sprintf("it belongs to %s %s", c.Kind, c.Name)
	}
	if u.GetDeletionTimestamp() != nil {
		return "it is being deleted"
	}
	return ""
}

// collect reads what is to be taken over in all clusters.
func (r *run) collect(ctx context.Context) ([]*item, error) {
	if len(r.Names) == 0 {
		return r.collectAll(ctx)
	}
	var items []*item
	for _, word := range r.Names {
		kindWord, name, ok := strings.Cut(word, "/")
		if !ok || kindWord == "" || name == "" {
			return nil, fmt.Errorf("%q is not KIND/NAME, as in deployment/web", word)
		}
		k, err := resolve(r.served(), kindWord)
		if err != nil {
			return nil, err
		}
		i := &item{kind: k, name: name}
		if k.namespaced {
			i.namespace = r.Namespace
		}
		if err := r.read(ctx, i); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	sortItems(items)
	return items, nil
}

func sortItems(items []*item) {
	slices.SortStableFunc(items, func(a, b *item) int { return rank(a.GroupKind()) - rank(b.GroupKind()) })
}

// served are the kinds of all clusters.
func (r *run) served() []kind {
	var out []kind
	for _, m := range r.members {
		out = append(out, m.kinds...)
	}
	return out
}

// read fills in the copies of one object that was named.
func (r *run) read(ctx context.Context, i *item) error {
	var why []string
	for _, m := range r.members {
		u, err := m.find(ctx, i.kind, i.namespace, i.name)
		if err != nil {
			return err
		}
		if u == nil {
			continue
		}
		no := unfit(u)
		if no == managedAlready && i.GroupKind() == crdKind {
			i.managed = true
			no = ""
		}
		if no != "" {
			why = append(why, fmt.Sprintf("%s: %s", m.name, no))
			continue
		}
		i.copies = append(i.copies, adopt.Copy{Cluster: m.name, Object: u})
	}
	switch {
	case len(why) > 0:
		return fmt.Errorf("%s: %w: %s", i, adopt.ErrRefused, strings.Join(why, "; "))
	case len(i.copies) == 0:
		return fmt.Errorf("%s: %w (%s)", i, ErrNotThere, strings.Join(r.Clusters, ", "))
	}
	return nil
}

// collectAll reads a whole namespace.
func (r *run) collectAll(ctx context.Context) ([]*item, error) {
	var items []*item
	for _, gk := range order {
		if gk == crdKind {
			continue
		}
		found, err := r.list(ctx, gk, r.Namespace)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	return items, nil
}

// list reads all objects of a kind that can be taken over.
func (r *run) list(ctx context.Context, gk schema.GroupKind, namespace string) ([]*item, error) {
	byName := map[string]*item{}
	var items []*item
	for _, m := range r.members {
		n := slices.IndexFunc(m.kinds, func(k kind) bool { return k.GroupKind() == gk })
		if n < 0 {
			continue
		}
		k := m.kinds[n]
		list, err := m.resource(k, namespace).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s in %s: %w", k.resource, m.name, err)
		}
		for n := range list.Items {
			u := &list.Items[n]
			u.SetGroupVersionKind(k.GroupVersionKind)
			if unfit(u) != "" {
				continue
			}
			i := byName[u.GetNamespace()+"/"+u.GetName()]
			if i == nil {
				i = &item{kind: k, namespace: u.GetNamespace(), name: u.GetName()}
				byName[i.namespace+"/"+i.name] = i
				items = append(items, i)
			}
			i.copies = append(i.copies, adopt.Copy{Cluster: m.name, Object: u})
		}
	}
	return items, nil
}

// contents are the objects of a CustomResourceDefinition: those of the namespace,
// or all when none is named or the kind has no namespaces. The right to read them
// comes with the definition's own adoption.
func (r *run) contents(ctx context.Context, crd *item) ([]*item, error) {
	spec, _, _ := unstructured.NestedMap(crd.copies[0].Object.Object, "spec")
	group, _, _ := unstructured.NestedString(spec, "group")
	name, _, _ := unstructured.NestedString(spec, "names", "kind")
	gk := schema.GroupKind{Group: group, Kind: name}
	var items []*item
	err := until(ctx, r.Wait, func() (bool, error) {
		var err error
		items, err = r.list(ctx, gk, r.Namespace)
		switch {
		case !apierrors.IsForbidden(err):
			return true, err
		case r.DryRun:
			r.say("  objects of %s can be read once it has been taken over", gk)
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("objects of %s: %w", gk, err)
	}
	return items, nil
}
