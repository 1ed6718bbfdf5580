// Package quota keeps the usage of the endpoint's ResourceQuotas: what the
// control plane holds, and the Pods of all clusters together.
//
//	control plane informers ------> QuotaMonitor --.
//	watch of the Pods of a namespace with a quota --+-> queue -> usage -> status.used
//
// Pods are not held in memory: a namespace whose Pods have changed is listed
// from the member cache when its usage is counted. What admission asks before
// it lets an object in is this status.
package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	kubecontroller "k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/quota/v1/install"
)

const (
	workers = 3
	// resync bounds how long an error of the count can last.
	resync = 5 * time.Minute
	// discoveryPeriod is how soon a new kind is counted.
	discoveryPeriod = 10 * time.Second
	// settle gathers the changes of a moment into one count, and lets an
	// object that admission has counted appear.
	settle = time.Second
	// share of the time that counting one quota may take.
	share = 20
)

// Config names the controller's clients.
type Config struct {
	// ControlPlane sees the control plane alone, Fleet all clusters' Pods.
	ControlPlane, Fleet kubernetes.Interface
	// Shared are informers of the control plane, Objects those of every kind.
	Shared  informers.SharedInformerFactory
	Objects informerfactory.InformerFactory
}

// Controller counts.
type Controller struct {
	cfg      Config
	lister   corelisters.ResourceQuotaLister
	registry quotav1.Registry
	monitor  *resourcequota.QuotaMonitor
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	pods     *podWatches

	mu   sync.Mutex
	took map[cache.ObjectName]time.Duration
}

// New sets the controller up; its informers are started by the caller.
func New(ctx context.Context, cfg Config) (*Controller, error) {
	started := make(chan struct{})
	close(started)
	c := &Controller{
		cfg: cfg, lister: cfg.Shared.Core().V1().ResourceQuotas().Lister(), took: map[cache.ObjectName]time.Duration{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	c.pods = newPodWatches(cfg.Fleet, func(namespace string) { c.recount(ctx, namespace) })
	configuration, err := install.NewQuotaConfigurationForControllers(c.listers, cfg.Shared)
	if err != nil {
		return nil, fmt.Errorf("evaluators of quotas: %w", err)
	}
	c.registry = generic.NewRegistry(configuration.Evaluators())
	ignored := map[schema.GroupResource]struct{}{pods: {}}
	for gr := range configuration.IgnoredResources() {
		ignored[gr] = struct{}{}
	}
	c.monitor = resourcequota.NewMonitor(started, cfg.Objects, ignored, kubecontroller.StaticResyncPeriodFunc(resync),
		func(ctx context.Context, _ schema.GroupResource, namespace string) { c.recount(ctx, namespace) },
		c.registry, install.DefaultUpdateFilter())
	_, err = cfg.Shared.Core().V1().ResourceQuotas().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.changed(nil, obj) }, //nolint:contextcheck // watches run with the context of Run
		UpdateFunc: c.changed,
		DeleteFunc: func(obj any) { c.gone(obj) }, //nolint:contextcheck // as above
	})
	if err != nil {
		return nil, fmt.Errorf("watch quotas: %w", err)
	}
	return c, nil
}

// listers leads the evaluators to where the objects of a kind are.
func (c *Controller) listers(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
	if gvr.GroupResource() == pods {
		return podLister{client: c.cfg.Fleet}, nil
	}
	return generic.ListerFuncForResourceFunc(c.cfg.Objects.ForResource)(gvr)
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	var group sync.WaitGroup
	group.Go(func() { c.monitor.Run(ctx) })
	group.Go(func() { c.followKinds(ctx) })
	group.Go(func() { c.pods.run(ctx) })
	synced := c.cfg.Shared.Core().V1().ResourceQuotas().Informer().HasSynced
	if !cache.WaitForCacheSync(ctx.Done(), synced, func() bool { return c.monitor.IsSynced(ctx) }) {
		c.queue.ShutDown()
		group.Wait()
		return
	}
	for range workers {
		group.Go(func() {
			for c.work(ctx) {
			}
		})
	}
	group.Go(func() { c.resync(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
}

// followKinds counts kinds that come and go with CustomResourceDefinitions.
func (c *Controller) followKinds(ctx context.Context) {
	known := map[schema.GroupVersionResource]struct{}{}
	ticker := time.NewTicker(discoveryPeriod)
	defer ticker.Stop()
	for {
		found, err := resourcequota.GetQuotableResources(c.cfg.ControlPlane.Discovery().ServerPreferredNamespacedResources)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Not every kind is known to quotas", "err", err)
		}
		if err == nil || len(found) > len(known) {
			c.watchKinds(ctx, known, found)
			known = found
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Controller) watchKinds(ctx context.Context, known, found map[schema.GroupVersionResource]struct{}) {
	if equality.Semantic.DeepEqual(known, found) {
		return
	}
	if err := c.monitor.SyncMonitors(ctx, found); err != nil {
		klog.FromContext(ctx).Info("Some kinds are not counted by quotas", "err", err)
	}
	c.monitor.StartMonitors(ctx)
	c.recountAll()
}

func (c *Controller) changed(old, obj any) {
	now, ok := obj.(*corev1.ResourceQuota)
	if !ok {
		return
	}
	name := cache.MetaObjectToName(now)
	c.pods.want(name, constrainsPods(now))
	was, _ := old.(*corev1.ResourceQuota)
	switch {
	case was == nil || !equality.Semantic.DeepEqual(was.Spec, now.Spec) || unwritten(now):
		c.queue.Add(name)
	case !equality.Semantic.DeepEqual(was.Status, now.Status):
		// Admission has counted what may not have come to be.
		c.queue.AddAfter(name, share*settle/2)
	}
}

func (c *Controller) gone(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	if q, ok := obj.(*corev1.ResourceQuota); ok {
		name := cache.MetaObjectToName(q)
		c.pods.want(name, false)
		c.mu.Lock()
		delete(c.took, name)
		c.mu.Unlock()
	}
}

// recount is told that something in a namespace came, went or changed.
func (c *Controller) recount(ctx context.Context, namespace string) {
	quotas, err := c.lister.ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "List quotas", "namespace", namespace)
		return
	}
	for _, q := range quotas {
		c.enqueue(cache.MetaObjectToName(q))
	}
}

func (c *Controller) recountAll() {
	quotas, err := c.lister.List(labels.Everything())
	if err != nil {
		return // a cache does not fail
	}
	for _, q := range quotas {
		c.enqueue(cache.MetaObjectToName(q))
	}
}

// enqueue counts soon; where counting takes long, less often.
func (c *Controller) enqueue(name cache.ObjectName) {
	c.mu.Lock()
	took := c.took[name]
	c.mu.Unlock()
	c.queue.AddAfter(name, max(settle, share*took))
}

func (c *Controller) resync(ctx context.Context) {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.recountAll()
		}
	}
}

func (c *Controller) work(ctx context.Context) bool {
	name, stop := c.queue.Get()
	if stop {
		return false
	}
	defer c.queue.Done(name)
	start := time.Now()
	if err := c.sync(ctx, name); err != nil {
		if !apierrors.IsConflict(errors.Unwrap(err)) {
			klog.FromContext(ctx).Error(err, "The usage of a quota cannot be counted", "quota", name.String())
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	c.mu.Lock()
	c.took[name] = time.Since(start)
	c.mu.Unlock()
	return true
}

func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	q, err := c.lister.ResourceQuotas(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the quota: %w", err)
	}
	usage, err := quotav1.CalculateUsage(q.Namespace, q.Spec.Scopes, q.Spec.Hard, c.registry, q.Spec.ScopeSelector)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	next, changed := counted(q, usage)
	if !changed {
		return nil
	}
	_, err = c.cfg.ControlPlane.CoreV1().ResourceQuotas(name.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the usage: %w", err)
	}
	return nil
}
