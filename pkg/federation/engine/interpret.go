package engine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/config/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// newCustomizations makes the cache of ResourceInterpreterCustomizations.
func newCustomizations(e *Engine) cache.SharedIndexInformer {
	i := newInformer(e.client, configv1alpha1.SchemeGroupVersion.WithResource("resourceinterpretercustomizations"))
	changed := func(any) { e.reloadCustomizations(context.Background()) }
	// Both fail only on an informer that has been started.
	if err := i.SetTransform(typed(func() runtime.Object { return &interpreter.Customization{} })); err != nil {
		panic(err)
	}
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed,
		UpdateFunc: func(_, obj any) { changed(obj) },
	}); err != nil {
		panic(err)
	}
	return i
}

// reloadCustomizations has the interpreter know what users have written, and all
// that depends on it looked at again. Until the caches are full fillCaches does
// that.
func (e *Engine) reloadCustomizations(ctx context.Context) {
	if !e.customizations.HasSynced() {
		return
	}
	var list []*interpreter.Customization
	for _, obj := range e.customizations.GetStore().List() {
		if c, ok := obj.(*interpreter.Customization); ok && c.DeletionTimestamp == nil {
			list = append(list, c)
		}
	}
	changed, errs := e.interpreter.Load(ctx, list)
	for _, err := range errs {
		klog.FromContext(ctx).Error(err, "A customization is not used")
	}
	if len(changed) == 0 {
		return
	}
	e.understanding.Add(1)
	understood := func(w *kindWatch) bool { return slices.Contains(changed, w.GroupVersionKind) }
	for _, m := range e.memberList() {
		for _, gvk := range changed {
			if w := e.kindOf(gvk.GroupKind()); w != nil && w.GroupVersionKind == gvk && m.client != nil {
				m.rewatch(ctx, w.kind)
			}
		}
	}
	e.enqueueWhere(understood)
	for _, key := range e.templateKeys(understood) {
		e.statusQueue.AddBacklog(key)
	}
}

// templateKeys lists the templates of kinds.
func (e *Engine) templateKeys(match func(*kindWatch) bool) []marks.Key {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var out []marks.Key
	for _, w := range e.kinds {
		if !match(w) {
			continue
		}
		for _, obj := range w.informer.GetStore().List() {
			if t, ok := obj.(*template); ok {
				out = append(out, marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
			}
		}
	}
	return out
}

// scripted says whether replicas of the kind are counted and set by scripts.
func (e *Engine) scripted(gvk schema.GroupVersionKind) bool {
	return !divisible(gvk.GroupKind()) && e.interpreter.Divides(gvk)
}

// countReplicas fills in what scripts say of a template's replicas. Without an
// answer nothing is decided: what runs goes on as it was.
func (e *Engine) countReplicas(ctx context.Context, key marks.Key, t *template, s *shape) error {
	if !e.scripted(key.GroupVersionKind) {
		return e.weighComponents(ctx, key, t, s)
	}
	u, err := t.decode()
	if err != nil {
		return err
	}
	n, req, err := e.interpreter.Replicas(ctx, key.GroupVersionKind, u.Object)
	e.trouble(key, t, interpreter.GetReplicas, "", err)
	if err != nil {
		return err
	}
	s.counted = &n
	if req != nil {
		s.request = req.Request
	}
	return nil
}

// weighComponents reads what all components of a template ask for together: it
// goes whole to a cluster.
func (e *Engine) weighComponents(ctx context.Context, key marks.Key, t *template, s *shape) error {
	if !e.interpreter.Scripted(key.GroupVersionKind, interpreter.GetComponents) {
		return nil
	}
	u, err := t.decode()
	if err != nil {
		return err
	}
	components, err := e.interpreter.Components(ctx, key.GroupVersionKind, u.Object)
	e.trouble(key, t, interpreter.GetComponents, "", err)
	if err != nil {
		return err
	}
	s.request = corev1.ResourceList{}
	for _, c := range components {
		for name, q := range c.Request {
			q.Mul(int64(c.Replicas))
			sum := s.request[name]
			sum.Add(q)
			s.request[name] = sum
		}
	}
	return nil
}

// reviser sets a cluster's number of replicas where a script does that; nil for
// other kinds.
func (e *Engine) reviser(gvk schema.GroupVersionKind) func(map[string]any, int32) (map[string]any, error) {
	if !e.scripted(gvk) {
		return nil
	}
	return func(object map[string]any, n int32) (map[string]any, error) {
		return e.interpreter.Revise(context.Background(), gvk, object, n)
	}
}

// dependenciesOf reads what a template needs beside it.
func (e *Engine) dependenciesOf(ctx context.Context, key marks.Key, t *template) ([]dependencies.Ref, error) {
	if !e.interpreter.Scripted(key.GroupVersionKind, interpreter.GetDependencies) {
		return dependencies.Of(t.raw)
	}
	u, err := t.decode()
	if err != nil {
		return nil, err
	}
	refs, err := e.interpreter.Dependencies(ctx, key.GroupVersionKind, u.Object)
	e.trouble(key, t, interpreter.GetDependencies, "", err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return refs, nil
}
