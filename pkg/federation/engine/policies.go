package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// policyCache holds all policies, filed for matching: filled once from the
// caches, then changed policy by policy.
type policyCache struct {
	engine      *Engine
	propagation []cache.SharedIndexInformer
	overrides   []cache.SharedIndexInformer
	changed     chan struct{}
	revision    atomic.Uint64 // of the last change of a policy

	index     *placement.Index
	overrider *override.Index
	filled    atomic.Bool
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
	i := newInformer(p.engine.client, gvr)
	// Both fail only on an informer that has been started.
	if err := i.SetTransform(typed(fresh)); err != nil {
		panic(err)
	}
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.put(context.Background(), obj); p.enqueue(obj) },
		UpdateFunc: func(old, obj any) { p.put(context.Background(), obj); p.enqueue(old); p.enqueue(obj) },
		DeleteFunc: func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			p.drop(obj)
			p.enqueue(obj)
		},
	}); err != nil {
		panic(err)
	}
	return i
}

// put files a policy; one that is being deleted speaks no more.
func (p *policyCache) put(ctx context.Context, obj any) {
	log := klog.FromContext(ctx)
	if o, err := meta.Accessor(obj); err == nil && o.GetDeletionTimestamp() != nil {
		p.drop(obj)
		return
	}
	switch o := obj.(type) {
	case *policyv1alpha1.OverridePolicy:
		if err := p.overrider.Put(override.Policy{Namespace: o.Namespace, Name: o.Name, Spec: o.Spec}); err != nil {
			log.Error(err, "An override policy is ignored")
		}
	case *policyv1alpha1.ClusterOverridePolicy:
		if err := p.overrider.Put(override.Policy{Name: o.Name, Spec: o.Spec}); err != nil {
			log.Error(err, "An override policy is ignored")
		}
	default:
		if policy := propagationPolicy(obj); policy != nil {
			for _, err := range p.index.Put(policy) {
				log.Error(err, "A policy is ignored in part")
			}
		}
	}
}

func (p *policyCache) drop(obj any) {
	switch o := obj.(type) {
	case *policyv1alpha1.OverridePolicy:
		p.overrider.Drop(o.Namespace, o.Name)
	case *policyv1alpha1.ClusterOverridePolicy:
		p.overrider.Drop("", o.Name)
	case *policyv1alpha1.PropagationPolicy:
		p.index.Drop(o.Namespace, o.Name)
	case *policyv1alpha1.ClusterPropagationPolicy:
		p.index.Drop("", o.Name)
	}
}

// enqueue queues the templates that a policy selects.
func (p *policyCache) enqueue(obj any) {
	p.seen(obj)
	if !p.filled.Load() {
		return
	}
	p.poke()
	o, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	selectors, all := selectorsOf(obj)
	if all {
		p.engine.enqueueNamespace(o.GetNamespace())
		return
	}
	for _, s := range selectors {
		if o.GetNamespace() != "" {
			s.Namespace = o.GetNamespace()
		}
		p.engine.enqueueSelected(s)
	}
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

// fill files what the caches hold; their own events may come later.
func (p *policyCache) fill(ctx context.Context) {
	for _, i := range p.informers() {
		for _, obj := range i.GetStore().List() {
			p.put(ctx, obj)
		}
	}
	p.filled.Store(true)
}

// policyID is by what claims name a policy: its permanent id, or its UID where it
// is older than those.
func policyID(o metav1.Object, label string) policyUID {
	if id := o.GetLabels()[label]; id != "" {
		return policyUID(id)
	}
	return o.GetUID()
}

func propagationPolicy(obj any) *placement.Policy {
	switch o := obj.(type) {
	case *policyv1alpha1.PropagationPolicy:
		return &placement.Policy{Namespace: o.Namespace, Name: o.Name, UID: policyID(o, marks.NamespacePolicyID), Spec: o.Spec}
	case *policyv1alpha1.ClusterPropagationPolicy:
		return &placement.Policy{Name: o.Name, UID: policyID(o, marks.ClusterPolicyID), Default: o.Labels[placement.DefaultPolicyLabel] == "true", Spec: o.Spec}
	}
	return nil
}

func (p *policyCache) current() (*placement.Index, *override.Index) {
	return p.index, p.overrider
}

func (p *policyCache) kinds() []schema.GroupVersionKind {
	ix, _ := p.current()
	return ix.Kinds()
}
