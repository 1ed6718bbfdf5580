package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
	"github.com/isthmus-dev/isthmus/pkg/federation/watchdog"
)

// member is one connection to a cluster: its client, its caches of copies, its
// queue. A new connection is a new member.
type member struct {
	name   string
	engine *Engine
	client dynamic.Interface
	// schemas of the kinds that are written; nil without a connection.
	schemas *schemas
	queue   *priority.Queue[marks.Key]
	ctx     context.Context // of the connection: watches start long after it
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.RWMutex
	current  Member
	watches  map[schema.GroupKind]*copyWatch
	revision cache.SharedIndexInformer // ReplicaSets with a stamp
	scalers  *copyWatch                // all autoscalers
	applied  map[marks.Key]*applied

	fence memberFence
}

// copyWatch is the cache of the copies of one kind.
type copyWatch struct {
	informer cache.SharedIndexInformer
	ctx      context.Context //nolint:containedctx // of the watch, which ends before the connection when it is replaced
	stop     context.CancelFunc
	mu       sync.Mutex
	problem  string // why it does not fill
	hopeless bool   // it cannot: there is nothing to list, or not for us
}

// failed keeps why it does not fill, and reports whether that is the member's
// last word: silence and broken connections are none.
func (w *copyWatch) failed(err error) (hopeless bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem, w.hopeless = err.Error(), apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
	return w.hopeless
}

// settled: it is full, or will never be.
func (w *copyWatch) settled() bool {
	if w.informer.HasSynced() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hopeless
}

func (w *copyWatch) whyNot() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// applied is what is known of the last write of a copy, or of the finding that
// none was needed.
type applied struct {
	hash       uint64 // of what was said
	claims     uint64 // as the member answered
	uid        types.UID
	version    string // resourceVersion
	copyGen    int64
	template   types.UID
	generation int64 // of the template
	problem    string
	refused    string // why an object that is there is not taken over
	dropped    string // fields that the member does not know
	adopted    bool
	gone       types.UID // template whose copy is known not to be there
	waits      string    // the removal that waits for approval
	held       string    // why nothing is written, and what differs
	keeps      types.UID // deleted template whose held copy stays for now
	drifts     int
	driftAt    time.Time
	latest     *copyRecord     // the last answer, while the watch is behind it
	replicas   *int32          // being written
	rolling    *rollout.Budget // strategy of a content that is being written and starts a rollout
	unreported *unreported
	turn       bool // the content waits for its turn
	pends      bool // the arbiter has not granted all yet
	unsure     bool // replicas wait until the autoscalers are known
	rendering  *rendering
	// interpreted is what the copy's status was taken for last.
	interpreted *interpreted
}

func (e *Engine) memberList() []*member {
	e.mu.RLock()
	out := slices.Collect(maps.Values(e.members))
	e.mu.RUnlock()
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return out
}

func (e *Engine) member(name string) *member {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.members[name]
}

func (m *member) info() Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.current
}

func (m *member) cluster() placement.Cluster {
	c := m.info()
	return placement.Cluster{
		Name: c.Name, Labels: c.Labels, Provider: c.Provider, Region: c.Region, Zones: c.Zones,
		Taints: c.Taints, Ready: c.Ready && m.client != nil,
	}
}

// reloadMembers follows the directory: connections are opened and closed, and
// what depends on clusters is decided again.
func (e *Engine) reloadMembers(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	listed := map[string]Member{}
	for _, c := range e.cfg.Members.List() {
		listed[c.Name] = c
	}
	changed := false
	for _, m := range e.memberList() {
		c, ok := listed[m.name]
		if ok && c.Apply == m.info().Apply && c.UID == m.info().UID {
			continue
		}
		changed = true
		e.mu.Lock()
		delete(e.members, m.name)
		e.mu.Unlock()
		m.stop()
	}
	for _, c := range listed {
		if m := e.member(c.Name); m != nil {
			changed = m.update(c) || changed
			continue
		}
		changed = true
		e.connect(ctx, c)
	}
	e.mu.RLock()
	running := e.running
	e.mu.RUnlock()
	if changed && running {
		e.enqueueAll()
	}
}

// update takes over what the directory says; it reports whether decisions may
// depend on it.
func (m *member) update(c Member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.current
	m.current = c
	if c.Ready && !old.Ready && m.client != nil {
		// Who knows who wrote to it meanwhile.
		m.fence.ours.Store(false)
		m.wg.Go(func() { m.greet(m.ctx) })
	}
	return old.Ready != c.Ready || !reflect.DeepEqual(old.Served, c.Served) || !maps.Equal(old.Labels, c.Labels) || old.Region != c.Region || old.Provider != c.Provider ||
		!slices.Equal(old.Zones, c.Zones) || !slices.EqualFunc(old.Taints, c.Taints, func(a, b taint) bool { return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded) })
}

// connect opens a connection. A member without credentials is known, so that
// its share stays, but cannot be written to.
func (e *Engine) connect(ctx context.Context, c Member) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("cluster", c.Name)))
	m := &member{
		name: c.Name, engine: e, current: c, ctx: ctx, cancel: cancel,
		queue:   newQueue[marks.Key]("member_" + c.Name),
		watches: map[schema.GroupKind]*copyWatch{}, applied: map[marks.Key]*applied{},
	}
	if c.Apply != nil {
		config := applyConfig(c.Apply)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{m, newBounded(next)} })
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The member's connection cannot be used")
		} else {
			m.client = client
			m.schemas = e.schemasOf(ctx, c)
		}
	}
	e.mu.Lock()
	e.members[c.Name] = m
	var used []kind
	for _, w := range e.kinds {
		if w.used {
			used = append(used, w.kind)
		}
	}
	e.mu.Unlock()
	if m.client == nil {
		return
	}
	for _, b := range e.bindings.kinds() {
		if w := e.kindOf(b.GroupKind()); w != nil {
			used = append(used, w.kind)
		}
	}
	for _, k := range used {
		m.watch(ctx, k)
	}
	m.wg.Go(func() { m.watchFence(ctx) })
	if c.Ready && e.fence.checked.Load() {
		m.wg.Go(func() { m.greet(ctx) })
	}
	if m.schemas != nil {
		m.wg.Go(func() { m.watchSchemas(ctx) })
	}
	for range e.cfg.MemberWorkers {
		m.wg.Go(func() { work(ctx, m.queue, "member", m.sync) })
	}
}

func applyConfig(in *rest.Config) *rest.Config {
	c := rest.CopyConfig(in)
	c.QPS, c.Burst = 200, 400
	c.UserAgent = "isthmus-engine"
	return c
}

func (m *member) stop() {
	m.cancel()
	m.queue.ShutDown()
	waitAtMost(&m.wg, shutdownTime)
}

func (e *Engine) stopMembers() {
	for _, m := range e.memberList() {
		m.stop()
	}
}

// useKind watches the copies of a kind in all members.
func (e *Engine) useKind(ctx context.Context, gk schema.GroupKind) {
	e.mu.Lock()
	w := e.kinds[gk]
	if w == nil || w.used {
		e.mu.Unlock()
		return
	}
	w.used = true
	members := slices.Collect(maps.Values(e.members))
	e.mu.Unlock()
	for _, m := range members {
		if m.client != nil {
			m.watch(ctx, w.kind)
		}
	}
}

// watch starts the cache of the copies of a kind, once. It lives as long as
// the connection, however short ctx is.
func (m *member) watch(ctx context.Context, k kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watches[k.GroupKind()] != nil {
		return
	}
	w, err := m.newWatch(k) //nolint:contextcheck // scripts are bounded by the sandbox
	if err != nil {
		klog.FromContext(ctx).Error(err, "Copies cannot be watched", "kind", k.Kind)
		return
	}
	m.watches[k.GroupKind()] = w
	m.wg.Go(func() { w.informer.Run(w.ctx.Done()) })
	if k.GroupKind() == deploymentKind {
		m.watchRevisionsLocked(ctx)
	}
	if divisible(k.GroupKind()) {
		m.watchScalersLocked(ctx)
	}
}

// newInformer follows something in the member, however silent it gets.
func (m *member) newInformer(res dynamic.ResourceInterface, tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	silent := func(err error) {
		silences.WithLabelValues(m.name).Inc()
		klog.FromContext(m.ctx).Info("A list or watch is given up and begun anew", "err", err)
	}
	return informerFor(m.client, watchdog.Guard(listWatch(res, tweak), m.engine.cfg.Patience, silent))
}

// newWatch makes the cache of a kind's copies; the caller runs it.
func (m *member) newWatch(k kind) (*copyWatch, error) {
	w := &copyWatch{informer: m.newInformer(m.client.Resource(k.gvr()), func(o *metav1.ListOptions) { o.LabelSelector = marks.ManagedSelector })}
	w.ctx, w.stop = context.WithCancel(m.ctx)
	changed := func(old, obj any, level priority.Level) { m.copyChanged(k, old, obj, level) }
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { changed(nil, obj, levelOf(initial)) },
		UpdateFunc: func(old, obj any) { changed(old, obj, priority.New) },
		DeleteFunc: func(obj any) { changed(obj, nil, priority.New) },
	})
	return w, errors.Join(err,
		w.informer.SetTransform(m.transformCopy(k.GroupVersionKind)),
		w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			w.failed(err)
			if !apierrors.IsNotFound(err) {
				cache.DefaultWatchErrorHandler(ctx, r, err)
			}
		}))
}

// cacheFilled waits until a cache is full.
func cacheFilled(ctx context.Context, i cache.SharedIndexInformer) bool {
	return cache.WaitForCacheSync(ctx.Done(), i.HasSynced)
}

// copyChanged: status goes up, anything else is looked at.
func (m *member) copyChanged(k kind, old, obj any, level priority.Level) {
	if d, ok := old.(cache.DeletedFinalStateUnknown); ok {
		old = d.Obj
	}
	o, _ := old.(*copyRecord)
	n, _ := obj.(*copyRecord)
	last := n
	if last == nil {
		last = o
	}
	if last == nil {
		return
	}
	key := marks.Key{GroupVersionKind: k.GroupVersionKind, Namespace: last.Namespace, Name: last.Name}
	if n == nil {
		m.overtaken(key)
	}
	if divisible(k.GroupKind()) {
		if o != nil && n != nil && o.replicas != n.replicas {
			m.queue.Add(key)
		}
		m.engine.awaken(key)
	}
	switch {
	case o == nil && n != nil && n.owned && level == priority.New:
		m.queue.AddEcho(key)
	case o == nil || n == nil || o.claims != n.claims || o.owned != n.owned || o.UID != n.UID:
		m.queue.AddAs(key, level)
	case o.held != n.held:
		m.queue.Add(key)
		m.holdFlipped(key)
	case o.Generation != n.Generation && m.record(key).held != "":
		m.queue.Add(key) // the drift is another
	}
	if n == nil && m.engine.template(key) != nil {
		m.engine.templateQueue.Add(key)
	}
	m.engine.quotaSeen(key, o, n)
	if hasStatus(k.GroupKind()) {
		m.engine.statusQueue.AddAs(key, level)
	}
}

// copy is the cached copy of a template, nil when there is none.
func (m *member) copy(key marks.Key) *copyRecord { return copyIn(m.copies(key.GroupKind()), key) }

func (m *member) copies(gk schema.GroupKind) cache.Store {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if w := m.watches[gk]; w != nil {
		return w.informer.GetStore()
	}
	return nil
}

func copyIn(store cache.Store, key marks.Key) *copyRecord {
	if store == nil {
		return nil
	}
	obj, found, err := store.GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
	if err != nil || !found {
		return nil
	}
	r, _ := obj.(*copyRecord)
	return r
}

// filled says whether the cache of a kind's copies is complete, or why not.
func (m *member) filled(gk schema.GroupKind) error {
	m.mu.RLock()
	w := m.watches[gk]
	m.mu.RUnlock()
	if w == nil {
		return fmt.Errorf("%w: copies of %s are not watched yet", errStale, gk.Kind)
	}
	if !w.informer.HasSynced() {
		if why := w.whyNot(); why != "" {
			return fmt.Errorf("%w: %s: %s", errNotServed, gk.Kind, why)
		}
		return fmt.Errorf("%w: copies of %s", errStale, gk.Kind)
	}
	return nil
}

func (m *member) record(key marks.Key) applied {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if a := m.applied[key]; a != nil {
		return *a
	}
	return applied{}
}

func (m *member) change(key marks.Key, fn func(*applied)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.applied[key]
	if a == nil {
		a = &applied{}
		m.applied[key] = a
	}
	fn(a)
}

func (m *member) forget(key marks.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.applied, key)
}

func (m *member) resource(key marks.Key) (dynamic.ResourceInterface, error) {
	w := m.engine.kindOf(key.GroupKind())
	if w == nil {
		return nil, fmt.Errorf("%w: kind %s", errStale, key.Kind)
	}
	return m.client.Resource(w.gvr()).Namespace(key.Namespace), nil
}
