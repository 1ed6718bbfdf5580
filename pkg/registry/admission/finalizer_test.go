package admission

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

func TestTemplateFinalizer(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "a", Name: "x"}
	all := func(schema.GroupKind, metav1.Object, string) bool { return true }
	opaque := func(_ schema.GroupKind, _ metav1.Object, secretType string) bool { return secretType == "Opaque" }
	marked := meta
	marked.Finalizers = []string{"other", marks.Finalizer}
	for name, c := range map[string]struct {
		object      runtime.Object
		subresource string
		dryRun      bool
		selects     Selects
		want        []string
	}{
		"selected":         {object: &core.ConfigMap{ObjectMeta: meta}, selects: all, want: []string{marks.Finalizer}},
		"nobody leads":     {object: &core.ConfigMap{ObjectMeta: meta}},
		"not selected":     {object: &core.ConfigMap{ObjectMeta: meta}, selects: opaque},
		"a Secret's type":  {object: &core.Secret{ObjectMeta: meta, Type: "Opaque"}, selects: opaque, want: []string{marks.Finalizer}},
		"has it":           {object: &core.ConfigMap{ObjectMeta: marked}, selects: all, want: marked.Finalizers},
		"a subresource":    {object: &core.Pod{ObjectMeta: meta}, subresource: "binding", selects: all},
		"a dry run":        {object: &core.ConfigMap{ObjectMeta: meta}, dryRun: true, selects: all},
		"without metadata": {object: &metav1.Status{}, selects: all},
	} {
		var f TemplateFinalizer
		f.Lead(c.selects, func(schema.GroupKind, metav1.Object, string) (l, a map[string]string) { return nil, nil })
		plugin := templateFinalizer{admission.NewHandler(admission.Create), &f}
		a := admission.NewAttributesRecord(c.object, nil, schema.GroupVersionKind{Version: "v1", Kind: "X"}, "a", "x",
			schema.GroupVersionResource{Version: "v1", Resource: "xs"}, c.subresource, admission.Create, nil, c.dryRun, nil)
		if err := plugin.Admit(t.Context(), a, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if o, ok := c.object.(metav1.Object); ok && !slices.Equal(o.GetFinalizers(), c.want) {
			t.Errorf("%s: %v, want %v", name, o.GetFinalizers(), c.want)
		}
	}
}

// A client that replaces a template as a whole does not take our finalizer away,
// as that would be put back with every sync; a template that is going lets it go.
func TestTemplateFinalizerStays(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		deleting *metav1.Time
		old, new []string
		manager  string
		want     []string
	}{
		"replaced":        {old: []string{"a", marks.Finalizer}, new: []string{"a"}, want: []string{"a", marks.Finalizer}},
		"never there":     {old: []string{"a"}, new: nil},
		"kept":            {old: []string{marks.Finalizer}, new: []string{marks.Finalizer}, want: []string{marks.Finalizer}},
		"being deleted":   {deleting: &now, old: []string{marks.Finalizer}, new: nil},
		"by the engine":   {manager: marks.Manager, old: []string{marks.Finalizer}, new: nil},
		"others may come": {old: []string{marks.Finalizer}, new: []string{"b"}, want: []string{"b", marks.Finalizer}},
	} {
		var f TemplateFinalizer
		plugin := templateFinalizer{admission.NewHandler(admission.Update), &f}
		old := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Finalizers: c.old, DeletionTimestamp: c.deleting}}
		obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", Finalizers: c.new, DeletionTimestamp: c.deleting}}
		a := admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "a", "x",
			schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Update, &metav1.UpdateOptions{FieldManager: c.manager}, false, nil)
		if err := plugin.Admit(t.Context(), a, nil); err != nil || !slices.Equal(obj.GetFinalizers(), c.want) {
			t.Errorf("%s: %v, %v; want %v", name, obj.GetFinalizers(), err, c.want)
		}
	}
}
