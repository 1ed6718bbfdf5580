package engine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/enablement"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// addVersions keeps, in a definition that is about to be written, the versions
// that the member has beyond the template's.
func (m *member) addVersions(ctx context.Context, key marks.Key, r *rendered) error {
	if key.GroupKind() != crdKind {
		return nil
	}
	res, err := m.resource(key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := res.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // its end is an event
	}
	if err != nil {
		return fmt.Errorf("copy of %s in %s: %w", key, m.name, err)
	}
	if len(retain.AddVersions(r.object.Object, u.Object)) == 0 {
		return nil
	}
	r.version = u.GetResourceVersion() // of another one other versions might stay
	return r.measure(false)
}

// foreignCustom names an object of a definition that nobody here has made; ""
// when there is none. Deleting the definition would delete it.
func (m *member) foreignCustom(ctx context.Context, name string) (string, error) {
	gvr, err := m.customResource(ctx, name)
	if err != nil || gvr.Version == "" {
		return "", err
	}
	list, err := m.client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: marks.Managed + "!=true", Limit: 1})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("objects of %s in %s: %w", name, m.name, err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	o := &list.Items[0]
	if o.GetNamespace() != "" {
		return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName(), nil
	}
	return o.GetKind() + " " + o.GetName(), nil
}

// customResource is where the objects of a definition are served; nowhere when it
// is not there or serves no version.
func (m *member) customResource(ctx context.Context, name string) (schema.GroupVersionResource, error) {
	gvr := schema.GroupVersionResource{}
	w := m.engine.kindOf(crdKind)
	if w == nil {
		return gvr, fmt.Errorf("%w: kind %s", errStale, crdKind.Kind)
	}
	u, err := m.client.Resource(w.gvr()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return gvr, nil
	}
	if err != nil {
		return gvr, fmt.Errorf("CustomResourceDefinition %s in %s: %w", name, m.name, err)
	}
	gvr.Group, _, _ = unstructured.NestedString(u.Object, "spec", "group")
	gvr.Resource, _, _ = unstructured.NestedString(u.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] == true {
			gvr.Version, _ = version["name"].(string)
		}
	}
	return gvr, nil
}

// keepDefinition leaves a definition whose objects are not all ours, without our
// marks. It says whether it has.
func (m *member) keepDefinition(ctx context.Context, key marks.Key, there *copyRecord) (bool, error) {
	foreign, err := m.foreignCustom(ctx, key.Name)
	if err != nil || foreign == "" {
		return false, err
	}
	if t := m.engine.template(key); t != nil {
		m.engine.event(key, t, corev1.EventTypeWarning, reasonDefinitionKept,
			"%s: the definition stays because it holds %s, which nobody here has made", m.name, foreign)
	}
	return true, m.release(ctx, key, there)
}

// notServed says in a few words why copies of a kind cannot be there: what the
// member lacks, where that is known.
func (m *member) notServed(key marks.Key, err error) string {
	if lacks := m.lacks(key.GroupVersionKind); lacks != "" {
		return "the cluster lacks " + lacks
	}
	return err.Error()
}

// lacks names what the member would have to serve for the kind.
func (m *member) lacks(gvk schema.GroupVersionKind) string {
	w := m.engine.kindOf(gvk.GroupKind())
	if w == nil {
		return ""
	}
	return enablement.Lacking(m.info().Served, gvk, w.resource)
}

// missing is what the member lacks for the kind and is not about to get: a
// definition that is placed there is on its way.
func (e *Engine) missing(m *member, gvk schema.GroupVersionKind) string {
	lacks := m.lacks(gvk)
	if lacks == "" {
		return ""
	}
	if b := e.bindings.get(e.definitionOf(gvk.GroupKind())); b != nil && slices.Contains(clusterNames(b.Spec.Clusters), m.name) {
		return ""
	}
	return lacks
}

// definitionOf is the definition that a kind would have, if it has one.
func (e *Engine) definitionOf(gk schema.GroupKind) marks.Key {
	key := marks.Key{GroupVersionKind: crdKind.WithVersion("v1")}
	if w := e.kindOf(gk); w != nil {
		key.Name = w.resource + "." + gk.Group
	}
	return key
}

// enqueueDefined looks again at the objects of a definition that has moved.
func (e *Engine) enqueueDefined(key marks.Key) {
	if key.GroupKind() == crdKind {
		e.enqueueWhere(func(w *kindWatch) bool { return w.resource+"."+w.Group == key.Name })
	}
}
