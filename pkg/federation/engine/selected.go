package engine

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
)

// enqueueSelected queues the templates that a selector finds, and looks at no
// others where it names one.
func (e *Engine) enqueueSelected(s policyv1alpha1.ResourceSelector) {
	gv, err := schema.ParseGroupVersion(s.APIVersion)
	if err != nil {
		return
	}
	w := e.kindOf(gv.WithKind(s.Kind).GroupKind())
	if w == nil || w.GroupVersion() != gv {
		return
	}
	selector := labels.Everything()
	if s.Name == "" && s.LabelSelector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(s.LabelSelector); err != nil {
			return // the index says so
		}
	}
	selected := slices.DeleteFunc(w.templates(s.Namespace, s.Name), func(t *template) bool { return !selector.Matches(labels.Set(t.Labels)) })
	e.enqueueTemplates(w, selected)
}

// enqueueTemplates queues templates of a kind: many at once are backlog.
func (e *Engine) enqueueTemplates(w *kindWatch, templates []*template) {
	for _, t := range templates {
		e.templateChanged(w, nil, t, priority.Of(len(templates)))
	}
}

// templates in a namespace and of a name; both may be empty.
func (w *kindWatch) templates(namespace, name string) []*template {
	var objs []any
	var err error
	switch {
	case name != "" && (namespace != "" || !w.namespaced):
		var obj any
		var found bool
		if obj, found, err = w.informer.GetStore().GetByKey(cache.NewObjectName(namespace, name).String()); found {
			objs = []any{obj}
		}
	case namespace != "" && w.namespaced:
		objs, err = w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	default:
		objs = w.informer.GetStore().List()
	}
	if err != nil {
		return nil
	}
	var out []*template
	for _, obj := range objs {
		if t, ok := obj.(*template); ok && (name == "" || t.Name == name) {
			out = append(out, t)
		}
	}
	return out
}

// enqueueNamespace queues the templates of a namespace, or all.
func (e *Engine) enqueueNamespace(namespace string) {
	e.mu.RLock()
	watches := make([]*kindWatch, 0, len(e.kinds))
	for _, w := range e.kinds {
		if namespace == "" || w.namespaced {
			watches = append(watches, w)
		}
	}
	e.mu.RUnlock()
	for _, w := range watches {
		e.enqueueTemplates(w, w.templates(namespace, ""))
	}
}
