package engine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
)

// What brings all templates, or many, is backlog; a change of one goes before it,
// and the event of our own write is as urgent as the write was.
func TestWhatIsBacklog(t *testing.T) {
	const many = 100
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	e := &Engine{bindings: &bindingCache{}, templateQueue: newQueue[marks.Key](""), kinds: map[schema.GroupKind]*kindWatch{}}
	defer e.templateQueue.ShutDown()
	w := &kindWatch{kind: kind{GroupVersionKind: gvk, resource: "configmaps", namespaced: true}}
	w.informer = cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	e.kinds[gvk.GroupKind()] = w
	named := func(name string) string { return strings.Replace(settings, "name: c", "name: "+name, 1) }
	for i := range many {
		if err := w.informer.GetStore().Add(templateOf(t, named(fmt.Sprintf("c%d", i)))); err != nil {
			t.Fatal(err)
		}
	}
	changed := templateOf(t, named("c50"))
	other := templateOf(t, strings.Replace(named("c50"), "k: v", "k: w", 1))
	written := templateOf(t, strings.Replace(named("c50"), "uid: tu", "uid: tu, finalizers: ["+marks.Finalizer+"]", 1))
	all := policyv1alpha1.ResourceSelector{APIVersion: "v1", Kind: "ConfigMap"}
	for name, c := range map[string]struct {
		cause func()
		want  priority.Level
	}{
		"a resync":               {func() { e.enqueueWhere(func(*kindWatch) bool { return true }) }, priority.Backlog},
		"a policy for all":       {func() { e.enqueueSelected(all) }, priority.Backlog},
		"a policy for a name":    {func() { s := all; s.Name = "c50"; e.enqueueSelected(s) }, priority.New},
		"all of a namespace":     {func() { e.enqueueNamespace("d") }, priority.Backlog},
		"a change":               {func() { e.templateChanged(w, changed, other, priority.New) }, priority.New},
		"a filled cache":         {func() { e.templateChanged(w, nil, changed, levelOf(true)) }, priority.Backlog},
		"a new one":              {func() { e.templateChanged(w, nil, changed, levelOf(false)) }, priority.New},
		"a write in the backlog": {func() { e.templateChanged(w, changed, written, priority.New) }, priority.Backlog},
		"a change in a backlog": {func() {
			e.enqueueNamespace("d")
			e.templateChanged(w, changed, other, priority.New)
		}, priority.New},
	} {
		e.templateQueue.AddBacklog(marks.Key{GroupVersionKind: gvk, Namespace: "d", Name: "c50"})
		drain(e.templateQueue)
		c.cause()
		if level, found := drain(e.templateQueue)["c50"]; !found || level != c.want {
			t.Errorf("%s: queued %t, on level %d", name, found, level)
		}
	}
}

// drain takes all, and says on which level each was.
func drain(q *priority.Queue[marks.Key]) map[string]priority.Level {
	out := map[string]priority.Level{}
	for q.Len() > 0 {
		key, _ := q.Get()
		out[key.Name] = q.Level(key)
		q.Done(key)
	}
	return out
}
