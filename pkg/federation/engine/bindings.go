package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// binding is a ResourceBinding; a ClusterResourceBinding has the same parts
// and no namespace.
type binding = workv1alpha2.ResourceBinding

// deletedTemplate, on a binding, records that the template with this UID was
// deleted while the clusters in spec.clusters could not be reached.
const deletedTemplate = "isthmus.dev/deleted-template"

// orphanDependents, on such a binding, records that the client asked to leave
// dependents alone.
const orphanDependents = "isthmus.dev/orphan-dependents"

// bindingCache reads and writes bindings. What was written is seen at once,
// however far the watch is behind.
type bindingCache struct {
	engine     *Engine
	namespaced cache.SharedIndexInformer
	cluster    cache.SharedIndexInformer

	mu      sync.Mutex
	written map[marks.Key]*binding
}

const byTemplate = "template"

func newBindingCache(e *Engine) *bindingCache {
	b := &bindingCache{engine: e, written: map[marks.Key]*binding{}}
	resource := workv1alpha2.SchemeGroupVersion.WithResource
	b.namespaced = b.informer(resource("resourcebindings"))
	b.cluster = b.informer(resource("clusterresourcebindings"))
	return b
}

func (b *bindingCache) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{b.namespaced, b.cluster}
}

func (b *bindingCache) informer(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	i := newInformer(b.engine.client, gvr)
	// These fail only on an informer that has been started.
	for _, err := range []error{
		i.SetTransform(typed(func() runtime.Object { return &binding{} })),
		i.AddIndexers(cache.Indexers{byTemplate: func(obj any) ([]string, error) {
			if x, ok := obj.(*binding); ok {
				return []string{identity(keyOf(x))}, nil
			}
			return nil, nil
		}, byCohort: func(obj any) ([]string, error) {
			if x, ok := obj.(*binding); ok {
				return cohortsOf(x), nil
			}
			return nil, nil
		}}),
	} {
		if err != nil {
			panic(err)
		}
	}
	changed := func(obj any, initial bool) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if x, ok := obj.(*binding); ok {
			key := b.engine.canonical(keyOf(x))
			if initial {
				b.engine.templateQueue.AddBacklog(key)
				return
			}
			b.engine.templateQueue.AddEcho(key) // mostly the engine's own writes
		}
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: changed, DeleteFunc: func(obj any) { changed(obj, false) },
		UpdateFunc: func(old, obj any) {
			o, okO := old.(*binding)
			n, okN := obj.(*binding)
			if okO && okN && (o.Generation != n.Generation || asksChanged(o, n)) {
				changed(obj, false)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	return i
}

// keyOf is the template of a binding.
func keyOf(x *binding) marks.Key {
	r := x.Spec.Resource
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		gv = schema.GroupVersion{}
	}
	return marks.Key{GroupVersionKind: gv.WithKind(r.Kind), Namespace: r.Namespace, Name: r.Name}
}

// identity leaves out the version, which is no part of it.
func identity(k marks.Key) string {
	k.Version = "-"
	return k.String()
}

// canonical is the key in the version in which the kind is watched.
func (e *Engine) canonical(k marks.Key) marks.Key {
	if w := e.kindOf(k.GroupKind()); w != nil {
		k.GroupVersionKind = w.GroupVersionKind
	}
	return k
}

func (b *bindingCache) kinds() []schema.GroupVersionKind {
	seen := map[schema.GroupVersionKind]struct{}{}
	var out []schema.GroupVersionKind
	for _, i := range b.informers() {
		for _, obj := range i.GetStore().List() {
			if x, ok := obj.(*binding); ok {
				gvk := keyOf(x).GroupVersionKind
				if _, dup := seen[gvk]; !dup {
					seen[gvk] = struct{}{}
					out = append(out, gvk)
				}
			}
		}
	}
	return out
}

// recorded lists the deleted templates that have left copies somewhere.
func (b *bindingCache) recorded() []marks.Key {
	var out []marks.Key
	for _, i := range b.informers() {
		for _, obj := range i.GetStore().List() {
			if x, ok := obj.(*binding); ok && x.Annotations[deletedTemplate] != "" {
				out = append(out, keyOf(x))
			}
		}
	}
	return out
}

// get finds the binding of a template; nil when there is none.
func (b *bindingCache) get(key marks.Key) *binding {
	i := b.namespaced
	if key.Namespace == "" {
		i = b.cluster
	}
	var cached *binding
	if objs, err := i.GetIndexer().ByIndex(byTemplate, identity(key)); err == nil && len(objs) > 0 {
		// More than one is nobody's doing but a user's: the oldest name counts.
		slices.SortFunc(objs, func(x, y any) int { return strings.Compare(x.(*binding).Name, y.(*binding).Name) })
		cached = objs[0].(*binding)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.written[key]
	switch {
	case w == nil:
		return cached
	case cached != nil && !newer(w.ResourceVersion, cached.ResourceVersion):
		delete(b.written, key)
		return cached
	case cached == nil && w.Annotations[forgotten] != "":
		return nil
	case w.Annotations[forgotten] != "":
		// Deleted by us, the watch has not seen it yet.
		return nil
	}
	return w
}

// forgotten marks, in memory only, a binding that was deleted.
const forgotten = "isthmus.dev/forgotten"

func (b *bindingCache) remember(key marks.Key, x *binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written[key] = x
}

// forget drops what was written, when the API server knows better.
func (b *bindingCache) forget(key marks.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.written, key)
}

func (b *bindingCache) resource(key marks.Key) dynamic.ResourceInterface {
	if key.Namespace == "" {
		return b.engine.client.Resource(workv1alpha2.SchemeGroupVersion.WithResource("clusterresourcebindings"))
	}
	return b.engine.client.Resource(workv1alpha2.SchemeGroupVersion.WithResource("resourcebindings")).Namespace(key.Namespace)
}

// bindingName is "<name>-<kind in lower case>"; unique says to add a hash,
// because another group's kind of the same name has taken that.
func bindingName(key marks.Key, unique bool) string {
	name := strings.ReplaceAll(key.Name, ":", ".") + "-" + strings.ToLower(key.Kind)
	if !unique && len(name) <= 253 && name == strings.ToLower(name) && !strings.Contains(key.Name, ":") {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(identity(key)))
	name = strings.ToLower(name)
	return fmt.Sprintf("%s-%016x", strings.TrimRight(name[:min(len(name), 230)], ".-"), h.Sum64())
}

// store creates or updates a binding and returns it as stored.
func (b *bindingCache) store(ctx context.Context, key marks.Key, x *binding) (*binding, error) {
	x.APIVersion, x.Kind = workv1alpha2.SchemeGroupVersion.String(), "ResourceBinding"
	if key.Namespace == "" {
		x.Kind = "ClusterResourceBinding"
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		return nil, fmt.Errorf("binding of %s: %w", key, err)
	}
	u := &unstructured.Unstructured{Object: object}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	writes.WithLabelValues("binding").Inc()
	var got *unstructured.Unstructured
	if x.ResourceVersion == "" {
		got, err = b.create(ctx, key, u)
	} else {
		got, err = b.resource(key).Update(ctx, u, metav1.UpdateOptions{FieldManager: marks.Manager})
	}
	if err != nil {
		if !apierrors.IsConflict(err) {
			b.forget(key)
		}
		return nil, fmt.Errorf("binding of %s: %w", key, err)
	}
	return b.seen(key, got)
}

func (b *bindingCache) create(ctx context.Context, key marks.Key, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u.SetName(bindingName(key, false))
	got, err := b.resource(key).Create(ctx, u, metav1.CreateOptions{FieldManager: marks.Manager})
	if !apierrors.IsAlreadyExists(err) {
		return got, err
	}
	there, getErr := b.resource(key).Get(ctx, u.GetName(), metav1.GetOptions{})
	if getErr != nil {
		return nil, getErr
	}
	other := &binding{}
	if convErr := runtime.DefaultUnstructuredConverter.FromUnstructured(there.Object, other); convErr != nil {
		return nil, convErr
	}
	if identity(keyOf(other)) == identity(key) {
		return nil, errStale
	}
	u.SetName(bindingName(key, true))
	return b.resource(key).Create(ctx, u, metav1.CreateOptions{FieldManager: marks.Manager})
}

func (b *bindingCache) seen(key marks.Key, u *unstructured.Unstructured) (*binding, error) {
	u.SetManagedFields(nil)
	out := &binding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("binding of %s: %w", key, err)
	}
	b.remember(key, out)
	return out, nil
}

// storeStatus replaces the status of a binding.
func (b *bindingCache) storeStatus(ctx context.Context, key marks.Key, x *binding, status workv1alpha2.ResourceBindingStatus) error {
	said := struct {
		workv1alpha2.ResourceBindingStatus `json:",inline"`
		AggregatedStatus                   []workv1alpha2.AggregatedStatusItem `json:"aggregatedStatus"` // empty is said, too
	}{status, status.AggregatedStatus}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.UID}, "status": said})
	if err != nil {
		return fmt.Errorf("binding of %s: %w", key, err)
	}
	writes.WithLabelValues("binding status").Inc()
	got, err := b.resource(key).Patch(ctx, x.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: marks.StatusManager}, "status")
	if err != nil {
		return fmt.Errorf("status of the binding of %s: %w", key, err)
	}
	_, err = b.seen(key, got)
	return err
}

func (b *bindingCache) delete(ctx context.Context, key marks.Key, x *binding) error {
	err := b.resource(key).Delete(ctx, x.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(x.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("binding of %s: %w", key, err)
	}
	gone := x.DeepCopy()
	gone.Annotations = map[string]string{forgotten: "true"}
	b.remember(key, gone)
	return nil
}

// live reads the evidence for a removal past all caches, and its version.
func (b *bindingCache) live(ctx context.Context, key marks.Key) (intent.Binding, string, error) {
	known := b.get(key)
	name := bindingName(key, false)
	if known != nil {
		name = known.Name
	}
	u, err := b.resource(key).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return intent.Binding{}, "", nil
	}
	if err != nil {
		return intent.Binding{}, "", fmt.Errorf("binding of %s: %w", key, err)
	}
	x := &binding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, x); err != nil {
		return intent.Binding{}, "", fmt.Errorf("binding of %s: %w", key, err)
	}
	if identity(keyOf(x)) != identity(key) {
		return intent.Binding{}, "", nil
	}
	out := intent.Binding{
		Found: true, TemplateUID: x.Spec.Resource.UID, Targets: clusterNames(x.Spec.Clusters),
		Decided:         x.Annotations[decidedAnnotation] == "true",
		Preserve:        x.Spec.PreserveResourcesOnDeletion != nil && *x.Spec.PreserveResourcesOnDeletion,
		DeletedTemplate: types.UID(x.Annotations[deletedTemplate]),
		Orphan:          x.Annotations[orphanDependents] == "true",
	}
	return out, x.ResourceVersion, nil
}

// decidedAnnotation, on a binding, says that its targets are a decision, not
// the lack of one.
const decidedAnnotation = "isthmus.dev/decided"

func clusterNames(targets []workv1alpha2.TargetCluster) []string {
	out := make([]string, 0, len(targets))
	for _, t := range targets {
		out = append(out, t.Name)
	}
	return out
}
