// Package membercache is the member cache: feeds of all sources, merged into
// one collection per resource.
//
//	SetSource -> one feed per resource -> merge.Source -> merge.Collection
//	          -> metadata feeds of managed copies -> references.Index
//	moved names, changed owners -> Run -> Collection.Reresolve
//
// It implements cache.Cache.
package membercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/scavenge"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
)

// Config is what a Cache is made of.
type Config struct {
	// Resources that are cached; DefaultResources where empty.
	Resources []cache.Resource
	// Clock stamps every event. The caller has opened it over a Reservation.
	Clock *sequence.Clock
	// Limits of the history per resource; store.DefaultLimits otherwise.
	Limits map[schema.GroupVersionResource]store.Limits
	// Dir is a folder in which the state is kept over a restart; none where
	// empty.
	Dir string
	// Now is the time; the real one where nil.
	Now clock.WithTicker
	// CompareEvery is how long it takes at least until each resource of each
	// source was compared once; DefaultCompareEvery where zero.
	CompareEvery time.Duration
	// Pending says that the sources are not known before Complete is called:
	// until then no answer may pass for a whole one.
	Pending bool
	// Replica is set where this cache is one of several; it follows another
	// until Lead, with a clock that is started by then.
	Replica Replica
}

// eventLimits keep the Events from pushing out more useful history.
var eventLimits = store.Limits{Bytes: 32 << 20, Age: 5 * time.Minute}

const (
	tickEvery    = time.Second
	resolveDelay = 20 * time.Millisecond // gathers what changes together
)

// Cache is the member cache.
type Cache struct {
	cfg         Config
	index       *references.Index
	collections []*collection
	byResource  map[schema.GroupVersionResource]*collection
	arena       *arena.Arena
	counters    counters
	identities  identities
	known       known
	following   atomic.Bool

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	sources map[cache.ClusterName]*source
	feeds   sync.WaitGroup
	// complete is closed by Complete; nil before Lead.
	complete chan struct{}

	dirtyMu sync.Mutex
	dirty   map[cache.ClusterName]merge.Changes
	wake    chan struct{}
}

var _ cache.Cache = &Cache{}

// ErrConfig is wrapped by what is wrong with a Config or a Source.
var ErrConfig = errors.New("invalid member cache configuration")

// New makes a cache without sources.
func New(cfg Config) (*Cache, error) {
	if cfg.Clock == nil {
		return nil, fmt.Errorf("%w: no clock", ErrConfig)
	}
	if len(cfg.Resources) == 0 {
		cfg.Resources = DefaultResources()
	}
	if cfg.Now == nil {
		cfg.Now = clock.RealClock{}
	}
	c := &Cache{
		cfg:        cfg,
		arena:      arena.New(),
		byResource: map[schema.GroupVersionResource]*collection{},
		sources:    map[cache.ClusterName]*source{},
		dirty:      map[cache.ClusterName]merge.Changes{},
		wake:       make(chan struct{}, 1),
	}
	c.index = references.NewIndex(c.signal)
	c.counters = newCounters()
	c.following.Store(cfg.Replica != nil)
	c.known.load(c)
	// Nodes before Pods before the others: that is the order of references
	// and of locks.
	var pods, nodes *merge.Collection
	for _, rank := range []int{0, 1, 2} {
		for _, res := range cfg.Resources {
			if rankOf(res) != rank {
				continue
			}
			if _, ok := c.byResource[res.GroupVersionResource]; ok {
				return nil, fmt.Errorf("%w: %s is there twice", ErrConfig, res.GroupVersionResource)
			}
			col := c.restored(res, pods, nodes)
			switch rank {
			case 0:
				nodes = col.Collection
			case 1:
				pods = col.Collection
			}
			c.collections = append(c.collections, col)
			c.byResource[res.GroupVersionResource] = col
		}
	}
	return c, nil
}

func rankOf(res cache.Resource) int {
	switch res.GroupVersionResource {
	case Nodes.GroupVersionResource:
		return 0
	case Pods.GroupVersionResource:
		return 1
	}
	return 2
}

func (c *Cache) newCollection(res cache.Resource, pods, nodes *merge.Collection) *collection {
	limits, ok := c.cfg.Limits[res.GroupVersionResource]
	switch {
	case ok:
	case res.Kind == "Event":
		limits = eventLimits
	default:
		limits = store.DefaultLimits
	}
	var head uint64
	if c.cfg.Replica == nil {
		head = c.cfg.Clock.Next()
	}
	m := merge.New(merge.Config{
		Head: head, Follow: c.cfg.Replica != nil, Identities: &c.known.Identities,
		Resource: res, Clock: c.cfg.Clock, Limits: limits, Now: c.cfg.Now,
		Index: c.index, Arena: c.arena, Pods: pods, Nodes: nodes, Moved: c.movedOf(res),
	})
	if c.cfg.Pending {
		m.SetPending(true)
	}
	m.OnError(func(err error, cluster cache.ClusterName) {
		c.counters.dropped.WithLabelValues(res.Resource).Inc()
		klog.Background().V(2).Info("Object is not served as it should be", "cluster", cluster, "resource", res.Resource, "err", err)
	})
	return &collection{Collection: m, cache: c}
}

// movedOf notes what others may refer to: Pods and Nodes by name.
func (c *Cache) movedOf(res cache.Resource) func(cache.ClusterName, cache.Key) {
	rank := rankOf(res)
	if rank > 1 {
		return nil
	}
	return func(cluster cache.ClusterName, key cache.Key) {
		c.dirtyMu.Lock()
		ch := c.dirty[cluster]
		if rank == 0 {
			if ch.Nodes == nil {
				ch.Nodes = map[string]struct{}{}
			}
			ch.Nodes[key.Name] = struct{}{}
		} else {
			if ch.Pods == nil {
				ch.Pods = map[cache.Key]struct{}{}
			}
			ch.Pods[key] = struct{}{}
		}
		c.dirty[cluster] = ch
		c.dirtyMu.Unlock()
		c.signal()
	}
}

func (c *Cache) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Resolve serves anew what refers to something that is served otherwise now.
// Run does it all the time.
func (c *Cache) Resolve() {
	c.dirtyMu.Lock()
	changes := c.dirty
	c.dirty = map[cache.ClusterName]merge.Changes{}
	c.dirtyMu.Unlock()
	for cluster, uids := range c.index.Drain() {
		ch := changes[cluster]
		ch.Owners = uids
		changes[cluster] = ch
	}
	for cluster, others := range c.index.Renames().Drain() {
		ch := changes[cluster]
		ch.Others = others
		changes[cluster] = ch
	}
	if len(changes) == 0 {
		return
	}
	for _, col := range c.collections {
		col.Reresolve(changes)
	}
}

// Run feeds the cache until ctx ends, then ends all readers.
func (c *Cache) Run(ctx context.Context) {
	c.mu.Lock()
	c.ctx = ctx
	for _, s := range c.sources {
		s.start(ctx)
	}
	c.mu.Unlock()
	c.feeds.Go(func() { c.rest(ctx) })
	c.feeds.Go(func() { scavenge.Run(ctx, c.cfg.Now) })
	c.feeds.Go(func() { c.save(ctx) })
	c.feeds.Go(func() { c.compareAll(ctx) })
	tick := c.cfg.Now.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.stop()
			return
		case <-tick.C():
			c.index.Expire(c.cfg.Now.Now())
			if !c.Following() && !c.holds() {
				continue // somebody else may number events by now
			}
			for _, col := range c.collections {
				col.Tick()
			}
		case <-c.wake:
			timer := c.cfg.Now.NewTimer(resolveDelay)
			select {
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
			}
			if c.holds() {
				c.Resolve()
			}
		}
	}
}

func (c *Cache) stop() {
	for _, col := range c.collections {
		col.Close()
	}
	c.feeds.Wait()
	c.saveLogs()
	c.known.release()
}

// Collection implements cache.Cache.
func (c *Cache) Collection(gvr schema.GroupVersionResource) (cache.Collection, bool) {
	col, ok := c.byResource[gvr]
	if !ok {
		return nil, false
	}
	return col, true
}

// Collections implements cache.Cache.
func (c *Cache) Collections() []cache.Collection {
	all := make([]cache.Collection, len(c.collections))
	for i, col := range c.collections {
		all[i] = col
	}
	return all
}

// Complete says that every source that exists has been set or is expected, and
// names them: what was kept of others goes, they have left meanwhile.
func (c *Cache) Complete(exist ...cache.ClusterName) {
	c.mu.Lock()
	for name := range c.known.All() {
		if name != cache.ControlPlane && !slices.Contains(exist, name) {
			c.known.leave(c, name)
		}
	}
	complete := c.complete
	c.complete = nil
	c.mu.Unlock()
	for _, col := range c.collections {
		col.SetPending(false)
	}
	if complete != nil {
		close(complete)
	}
}

// AwaitLoaded implements cache.Cache.
func (c *Cache) AwaitLoaded(ctx context.Context, gvr schema.GroupVersionResource) error {
	col, ok := c.byResource[gvr]
	if !ok {
		return fmt.Errorf("%w: %s is not cached", cache.ErrNotFound, gvr)
	}
	return col.Collection.AwaitLoaded(ctx)
}
