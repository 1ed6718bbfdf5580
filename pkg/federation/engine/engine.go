package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
	"github.com/isthmus-dev/isthmus/pkg/federation/reconcile"
)

// Engine propagates. Make it with New, start it with Run.
type Engine struct {
	cfg    Config
	id     string // of the control plane
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper

	recorder record.EventRecorder

	bindings  *bindingCache
	policies  *policyCache
	revisions *revisionCache // ReplicaSets of Deployments
	history   *revisionCache // ControllerRevisions of StatefulSets and DaemonSets
	needs     *needs
	schemas   *schemaStore
	fence     *fenceKeeper
	breaker   *breakerKeeper
	shown     shownConditions
	arbiter   arbiter
	admitted  admitted
	cohorts   sync.Mutex // decisions that look at each other's clusters

	interpreter    *interpreter.Interpreter
	customizations cache.SharedIndexInformer
	understanding  atomic.Uint64 // changes whenever customizations do
	troubles       troubles
	vitals         vitals

	templateQueue *priority.Queue[marks.Key]
	statusQueue   *priority.Queue[marks.Key]

	// mu guards what follows. It is never held during a request, and it is
	// taken before a member's mutex.
	mu        sync.RWMutex
	kinds     map[schema.GroupKind]*kindWatch
	members   map[string]*member
	orphaning orphaning
	decisions map[marks.Key]*decision
	statuses  map[marks.Key]*statusMemo
	finalized map[marks.Key]string // resourceVersion at which our finalizer was set
	running   bool
}

// kindWatch is a federated kind with its cache of templates.
type kindWatch struct {
	kind
	informer cache.SharedIndexInformer
	used     bool // members are watched for copies
}

// New prepares an engine; it makes no request yet.
func New(cfg Config) (*Engine, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:           cfg,
		id:            cfg.ControlPlaneID,
		templateQueue: newQueue[marks.Key]("templates"),
		statusQueue:   newQueue[marks.Key]("status"),
		kinds:         map[schema.GroupKind]*kindWatch{},
		members:       map[string]*member{},
		decisions:     map[marks.Key]*decision{},
		statuses:      map[marks.Key]*statusMemo{},
		finalized:     map[marks.Key]string{},
		needs:         newNeeds(),
		schemas:       newSchemaStore(),
	}
	hub := rest.CopyConfig(cfg.ControlPlane)
	hub.QPS, hub.Burst = -1, 0
	hub.UserAgent = "isthmus-engine"
	var err error
	if e.client, err = dynamic.NewForConfig(hub); err != nil {
		return nil, fmt.Errorf("control plane client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("control plane discovery: %w", err)
	}
	e.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	events, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("control plane events: %w", err)
	}
	e.recorder = newRecorder(events)
	if e.interpreter, err = interpreter.New(context.Background()); err != nil {
		return nil, err
	}
	e.customizations = newCustomizations(e)
	e.bindings = newBindingCache(e)
	e.policies = newPolicyCache(e)
	e.revisions = newRevisionCache(e, replicaSets, replicaSetOf)
	e.history = newRevisionCache(e, controllerRevisions, controllerRevisionOf)
	e.fence = newFenceKeeper(e)
	e.breaker = newBreakerKeeper(e)
	return e, nil
}

func newQueue[T comparable](name string) *priority.Queue[T] {
	return priority.NewQueue("federation_"+name, workqueue.NewTypedItemExponentialFailureRateLimiter[T](50*time.Millisecond, 2*time.Minute))
}

// Run propagates until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("federation"))
	log := klog.FromContext(ctx)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer waitAtMost(&wg, shutdownTime)
	defer cancel()
	if err := e.identify(ctx); err != nil {
		return err
	}
	if err := e.fillCaches(ctx, &wg); err != nil {
		return err
	}
	if err := e.fence.open(ctx); err != nil {
		return err
	}
	if err := e.breaker.load(ctx); err != nil {
		return err
	}
	unsubscribe := e.cfg.Members.Subscribe(func() { e.reloadMembers(ctx) })
	defer unsubscribe()
	e.reloadMembers(ctx)
	defer e.stopMembers()
	e.fence.checkAll(ctx)
	wg.Go(func() { e.fence.awaitAcceptances(ctx) })
	wg.Go(func() { e.breaker.run(ctx) })
	wg.Go(func() { e.watchOrphans(ctx) })
	e.primeNeeds() //nolint:contextcheck // scripts are bounded by the sandbox

	e.mu.Lock()
	e.running = true
	e.mu.Unlock()
	log.Info("All caches are full, propagation starts")
	for range e.cfg.TemplateWorkers {
		wg.Go(func() { work(ctx, e.templateQueue, "template", e.reconcileTemplate) })
		wg.Go(func() { work(ctx, e.statusQueue, "status", e.reconcileStatus) })
	}
	wg.Go(func() { e.retryKinds(ctx, &wg) })
	e.enqueueAll()
	var err error
	select {
	case <-ctx.Done():
	case err = <-e.fence.over:
	}
	e.templateQueue.ShutDown()
	e.statusQueue.ShutDown()
	return err
}

// shutdownTime bounds how long Run waits for what it has started: a request to
// a dead server is left to its own timeout.
const shutdownTime = 5 * time.Second

func waitAtMost(wg *sync.WaitGroup, d time.Duration) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}

// identify finds the id of the control plane.
func (e *Engine) identify(ctx context.Context) error {
	if e.id != "" {
		return nil
	}
	return retryUntil(ctx, "read the control plane's identity", func() error {
		ns, err := e.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err
		}
		e.id = string(ns.GetUID())
		return nil
	})
}

// retryUntil calls fn every second until it succeeds or ctx ends.
func retryUntil(ctx context.Context, what string, fn func() error) error {
	for {
		err := fn()
		if err == nil {
			return nil
		}
		klog.FromContext(ctx).Error(err, "Cannot go on yet", "doing", what)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// fillCaches starts the watches of the control plane and waits for them.
func (e *Engine) fillCaches(ctx context.Context, wg *sync.WaitGroup) error {
	var synced []cache.InformerSynced
	start := func(i cache.SharedIndexInformer) {
		wg.Go(func() { i.Run(ctx.Done()) })
		synced = append(synced, i.HasSynced)
	}
	for _, i := range e.policies.informers() {
		start(i)
	}
	for _, i := range e.bindings.informers() {
		start(i)
	}
	start(e.customizations)
	start(e.revisions.informer)
	start(e.history.informer)
	for _, k := range defaultKinds {
		w, err := e.addKind(k)
		if err != nil {
			return err
		}
		start(w.informer)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("federation engine: caches: %w", ctx.Err())
	}
	e.policies.fill(ctx)
	e.reloadCustomizations(ctx)
	synced = synced[:0]
	for _, w := range e.addNamedKinds(ctx) {
		start(w.informer)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("federation engine: caches: %w", ctx.Err())
	}
	return retryUntil(ctx, "wait for the list of clusters", func() error {
		if !e.cfg.Members.HasSynced() {
			return errMembersNotSynced
		}
		return nil
	})
}

// addKind makes the cache of a kind's templates; the caller runs it.
func (e *Engine) addKind(k kind) (*kindWatch, error) {
	w := &kindWatch{kind: k, informer: newInformer(e.client, k.gvr())}
	if err := w.informer.SetTransform(transformTemplate); err != nil {
		return nil, fmt.Errorf("templates of %s: %w", k.Kind, err)
	}
	if k.GroupKind() == autoscalerKind {
		if err := w.informer.AddIndexers(cache.Indexers{byTarget: indexByTarget}); err != nil {
			return nil, fmt.Errorf("templates of %s: %w", k.Kind, err)
		}
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { e.templateChanged(w, nil, obj, levelOf(initial)) },
		UpdateFunc: func(old, obj any) { e.templateChanged(w, old, obj, priority.New) },
		DeleteFunc: func(obj any) { e.templateChanged(w, nil, obj, priority.New) },
	})
	if err != nil {
		return nil, fmt.Errorf("templates of %s: %w", k.Kind, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds[k.GroupKind()] = w
	return w, nil
}

// addNamedKinds adds the kinds that policies or bindings name and that the
// control plane serves.
func (e *Engine) addNamedKinds(ctx context.Context) []*kindWatch {
	var added []*kindWatch
	wanted := append(e.policies.kinds(), e.bindings.kinds()...)
	for _, gk := range e.needs.kinds() {
		wanted = append(wanted, gk.WithVersion(""))
	}
	for _, gvk := range wanted {
		if e.kindOf(gvk.GroupKind()) != nil || forbiddenKind(gvk.GroupKind()) {
			continue
		}
		mapping, err := e.mapping(gvk)
		if err != nil {
			if meta.IsNoMatchError(err) {
				e.mapper.Reset()
			}
			klog.FromContext(ctx).V(2).Info("A policy names a kind that is not served", "kind", gvk, "err", err)
			continue
		}
		w, err := e.addKind(kind{
			GroupVersionKind: mapping.GroupVersionKind, resource: mapping.Resource.Resource,
			namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot watch a kind", "kind", gvk)
			continue
		}
		added = append(added, w)
	}
	return added
}

// mapping finds the resource of a kind; without a version, of the preferred one.
func (e *Engine) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if gvk.Version == "" {
		return e.mapper.RESTMapping(gvk.GroupKind())
	}
	return e.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// retryKinds adds kinds that come to be served or named later.
func (e *Engine) retryKinds(ctx context.Context, wg *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.policies.changed:
		case <-time.After(10 * time.Second):
		}
		for _, w := range e.addNamedKinds(ctx) {
			wg.Go(func() { w.informer.Run(ctx.Done()) })
		}
	}
}

func newInformer(client dynamic.Interface, gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	return informerFor(client, listWatch(client.Resource(gvr), nil))
}

func informerFor(client dynamic.Interface, lw *cache.ListWatch) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), &unstructured.Unstructured{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func listWatch(res dynamic.ResourceInterface, tweak func(*metav1.ListOptions)) *cache.ListWatch {
	set := func(o *metav1.ListOptions) {
		if tweak != nil {
			tweak(o)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			set(&o)
			return res.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watchInterface, error) {
			set(&o)
			return res.Watch(ctx, o)
		},
	}
}

func (e *Engine) kindOf(gk schema.GroupKind) *kindWatch {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.kinds[gk]
}

// template looks a template up in the caches.
func (e *Engine) template(key marks.Key) *template {
	w := e.kindOf(key.GroupKind())
	if w == nil {
		return nil
	}
	obj, found, err := w.informer.GetStore().GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
	if err != nil || !found {
		return nil
	}
	t, _ := obj.(*template)
	return t
}

// templateChanged queues a template unless only its status has changed.
func (e *Engine) templateChanged(w *kindWatch, old, obj any, level priority.Level) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	t, ok := obj.(*template)
	if !ok {
		return
	}
	key := marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name}
	e.orphaning.see(key, t)
	if o, ok := old.(*template); ok && o.UID == t.UID && o.content == t.content && o.Generation == t.Generation {
		return
	}
	if o, ok := old.(*template); ok && o.UID == t.UID && o.asked == t.asked && t.DeletionTimestamp == nil {
		e.templateQueue.AddEcho(key) // our own write
	} else {
		e.templateQueue.AddAs(key, level)
	}
	switch w.GroupKind() {
	case autoscalerKind:
		e.scalerChanged(t, level)
	case namespaceKind:
		o, _ := old.(*template)
		e.limitChanged(o, t)
	}
}

// enqueueAll queues every template, and every record of one that was deleted.
func (e *Engine) enqueueAll() {
	e.enqueueWhere(func(*kindWatch) bool { return true })
	for _, key := range e.bindings.recorded() {
		e.templateQueue.AddBacklog(e.canonical(key))
	}
}

// levelOf is the level of what a cache says: what it is filled with is no news.
func levelOf(initial bool) priority.Level {
	if initial {
		return priority.Backlog
	}
	return priority.New
}

func (e *Engine) enqueueWhere(match func(*kindWatch) bool) {
	e.mu.RLock()
	watches := make([]*kindWatch, 0, len(e.kinds))
	for _, w := range e.kinds {
		if match(w) {
			watches = append(watches, w)
		}
	}
	e.mu.RUnlock()
	for _, w := range watches {
		for _, obj := range w.informer.GetStore().List() {
			e.templateChanged(w, nil, obj, priority.Backlog)
		}
	}
}

// work serves a queue until it is shut down.
func work(ctx context.Context, q workqueue.TypedRateLimitingInterface[marks.Key], what string, fn func(context.Context, marks.Key) error) {
	reconcile.Serve(ctx, q, fn, func(key marks.Key, err error) {
		klog.FromContext(ctx).V(1).Info("Retrying", "queue", what, "key", key.String(), "err", err)
		retries.WithLabelValues(what).Inc()
	})
}
