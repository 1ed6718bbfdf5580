package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// policyCache holds all policies, filed for matching. It is rebuilt as a whole
// on every change, which is rare, and read without locks in between.
type policyCache struct {
	engine      *Engine
	propagation []cache.SharedIndexInformer
	overrides   []cache.SharedIndexInformer
	changed     chan struct{}
	revision    atomic.Uint64 // of the last change of a policy

	mu        sync.RWMutex
	index     *placement.Index
	overrider *override.Index
	filled    bool
}

func newPolicyCache(e *Engine) *policyCache {
	p := &policyCache{engine: e, changed: make(chan struct{}, 1)}
	resource := policyv1alpha1.SchemeGroupVersion.WithResource
	p.propagation = []cache.SharedIndexInformer{
		p.informer(resource("propagationpolicies"), func() runtime.Object { return &policyv1alpha1.PropagationPolicy{} }),
		p.informer(resource("clusterpropagationpolicies"), func() runtime.Object { return &policyv1alpha1.ClusterPropagationPolicy{} }),
	}
	p.overrides = []cache.SharedIndexInformer{
		p.informer(resource("overridepolicies"), func() runtime.Object { return &policyv1alpha1.OverridePolicy{} }),
		p.informer(resource("clusteroverridepolicies"), func() runtime.Object { return &policyv1alpha1.ClusterOverridePolicy{} }),
	}
	p.index, _ = placement.NewIndex(nil)
	p.overrider, _ = override.NewIndex(nil)
	return p
}

func (p *policyCache) informers() []cache.SharedIndexInformer {
	return append(slices.Clone(p.propagation), p.overrides...)
}

// typed converts what is cached to a Go type.
func typed(fresh func() runtime.Object) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		u.SetManagedFields(nil)
		out := fresh()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
			return nil, err
		}
		return out, nil
	}
}

func (p *policyCache) informer(gvr schema.GroupVersionResource, fresh func() runtime.Object) cache.SharedIndexInformer {
	i := newInformer(p.engine.client, gvr, nil)
	notify := func(obj any) { p.policyChanged(obj) }
	// Both fail only on an informer that has been started.
	if err := i.SetTransform(typed(fresh)); err != nil {
		panic(err)
	}
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, DeleteFunc: notify,
		UpdateFunc: func(old, obj any) { notify(old); notify(obj) },
	}); err != nil {
		panic(err)
	}
	return i
}

// policyChanged rebuilds the index and queues the templates of the kinds that
// the policy names.
func (p *policyCache) policyChanged(obj any) {
	p.mu.RLock()
	filled := p.filled
	p.mu.RUnlock()
	if !filled {
		return
	}
	p.rebuild(context.Background())
	p.poke()
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	p.seen(obj)
	selectors, all := selectorsOf(obj)
	p.engine.enqueueWhere(func(w *kindWatch) bool {
		return all || slices.ContainsFunc(selectors, func(s policyv1alpha1.ResourceSelector) bool {
			return s.Kind == w.Kind && s.APIVersion == w.GroupVersion().String()
		})
	})
}

// poke has the kinds that are named looked at again.
func (p *policyCache) poke() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// seen remembers how new the policies are.
func (p *policyCache) seen(obj any) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	for version := revisionOf(o.GetResourceVersion()); ; {
		was := p.revision.Load()
		if was >= version || p.revision.CompareAndSwap(was, version) {
			return
		}
	}
}

func selectorsOf(obj any) (selectors []policyv1alpha1.ResourceSelector, all bool) {
	switch o := obj.(type) {
	case *policyv1alpha1.PropagationPolicy:
		return o.Spec.ResourceSelectors, false
	case *policyv1alpha1.ClusterPropagationPolicy:
		return o.Spec.ResourceSelectors, false
	case *policyv1alpha1.OverridePolicy:
		return o.Spec.ResourceSelectors, len(o.Spec.ResourceSelectors) == 0
	case *policyv1alpha1.ClusterOverridePolicy:
		return o.Spec.ResourceSelectors, len(o.Spec.ResourceSelectors) == 0
	}
	return nil, true
}

func (p *policyCache) rebuild(ctx context.Context) {
	log := klog.FromContext(ctx)
	var policies []*placement.Policy
	for _, i := range p.propagation {
		for _, obj := range i.GetStore().List() {
			policies = append(policies, propagationPolicy(obj))
		}
	}
	index, errs := placement.NewIndex(slices.DeleteFunc(policies, func(x *placement.Policy) bool { return x == nil }))
	for _, err := range errs {
		log.Error(err, "A policy is ignored in part")
	}
	var rules []override.Policy
	for _, i := range p.overrides {
		for _, obj := range i.GetStore().List() {
			switch o := obj.(type) {
			case *policyv1alpha1.OverridePolicy:
				rules = append(rules, override.Policy{Namespace: o.Namespace, Name: o.Name, Spec: o.Spec})
			case *policyv1alpha1.ClusterOverridePolicy:
				rules = append(rules, override.Policy{Name: o.Name, Spec: o.Spec})
			}
		}
	}
	overrider, errs := override.NewIndex(rules)
	for _, err := range errs {
		log.Error(err, "An override policy is ignored in part")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index, p.overrider, p.filled = index, overrider, true
}

func propagationPolicy(obj any) *placement.Policy {
	switch o := obj.(type) {
	case *policyv1alpha1.PropagationPolicy:
		if o.DeletionTimestamp != nil {
			return nil
		}
		return &placement.Policy{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Spec: o.Spec}
	case *policyv1alpha1.ClusterPropagationPolicy:
		if o.DeletionTimestamp != nil {
			return nil
		}
		return &placement.Policy{Name: o.Name, UID: o.UID, Default: o.Labels[placement.DefaultPolicyLabel] == "true", Spec: o.Spec}
	}
	return nil
}

func (p *policyCache) current() (*placement.Index, *override.Index) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.index, p.overrider
}

func (p *policyCache) kinds() []schema.GroupVersionKind {
	ix, _ := p.current()
	return ix.Kinds()
}
