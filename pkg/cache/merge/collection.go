// Package merge makes one collection of the objects of all sources: it decides
// names, resolves references, stamps resourceVersions and records every change.
//
//	Source.Put, Delete, End (one source's bytes)
//	   -> names.Table (under which name)
//	   -> references (what its references lead to)
//	   -> sequence.Clock (the RV) -> wire.Rewrite (bytes as served)
//	   -> store.Commit (readers) and a journal (the next process)
//
// Lock order: Collection.mu of events, of pods, of nodes; then the reference
// index; then the store. While one is held an earlier one is never taken.
package merge

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Config is what a collection is made of.
type Config struct {
	Resource cache.Resource
	Clock    *sequence.Clock
	// Head is the RV at which an empty collection begins.
	Head   uint64
	Limits store.Limits
	Now    clock.WithTicker
	Index  *references.Index
	// Follow says that another process numbers the events, until Lead.
	Follow bool
	// Identities say which clusters the sources are.
	Identities *Identities
	// Arena holds what is packed.
	Arena *arena.Arena
	// Pods and Nodes are the collections that references lead to; nil where
	// they are not cached, or for these kinds themselves.
	Pods, Nodes *Collection
	// Moved is told of objects that are served under another name than in
	// their source, or no longer are: dependents may have to be made anew.
	// It is called with locks held and must not block.
	Moved func(cluster cache.ClusterName, source cache.Key)
}

// Collection implements cache.Collection but for what needs a member's answer.
type Collection struct {
	Config
	table  *wire.FieldTable
	look   references.Lookup
	kind   references.Kind
	store  *store.Store
	failed func(err error, cluster cache.ClusterName)

	mu      sync.RWMutex
	names   *names.Table
	sources map[cache.ClusterName]*Source
	hidden  map[names.Holder]*hidden
	moved   chan struct{} // closed when a source's position or state has changed
	pending bool          // not every source has joined yet
	follow  *following    // nil where this process numbers the events
	journal journaling
}

// hidden is a member's object that stands for one of the control plane.
type hidden struct {
	uid      types.UID
	sourceRV uint64
	owner    types.UID // of the controller, as in the source
	raw      []byte    // as in the source
}

// New makes an empty collection.
func New(cfg Config) *Collection {
	if cfg.Moved == nil {
		cfg.Moved = func(cache.ClusterName, cache.Key) {}
	}
	packer := &pack.Packer{Encoding: cfg.Resource.Encoding, Arena: cfg.Arena}
	table := wire.FieldsOf(cfg.Resource.Group, cfg.Resource.Kind)
	if table != nil {
		packer.Fields = table.Names
	}
	if cfg.Identities == nil {
		cfg.Identities = &Identities{}
	}
	c := &Collection{
		Config:  cfg,
		table:   table,
		look:    references.Lookup{Owners: cfg.Index, Renames: cfg.Index.Renames(), Table: references.TableOf(cfg.Resource)},
		kind:    references.KindOfResource(cfg.Resource),
		store:   store.New(cfg.Head, cfg.Limits, cfg.Now, packer),
		sources: map[cache.ClusterName]*Source{},
		hidden:  map[names.Holder]*hidden{},
		moved:   make(chan struct{}),
	}
	if cfg.Pods != nil {
		c.look.Pods = cfg.Pods
	}
	if cfg.Nodes != nil {
		c.look.Nodes = cfg.Nodes
	}
	keep := names.Keep
	if cfg.Resource.Kind == "Event" {
		keep = 0 // nobody deletes an Event twice, and there are many of them
	}
	c.names = names.New(served{c.store}, c.order, keep)
	if cfg.Follow {
		c.follow = &following{aliases: map[names.Holder]cache.Key{}}
	}
	return c
}

// served lets the names look up what is served now.
type served struct{ store *store.Store }

func (s served) At(key cache.Key) (names.Holder, bool) {
	o, ok := s.store.At(key)
	if !ok {
		return names.Holder{}, false
	}
	return holderOf(o), true
}

func holderOf(o *cache.Object) names.Holder {
	return names.Holder{Cluster: o.Cluster, Source: cache.Key{Namespace: o.Key.Namespace, Name: o.SourceName}}
}

// keptHolder is holderOf for an object of which nothing may be kept.
func keptHolder(o *cache.Object) names.Holder {
	return names.Holder{
		Cluster: cache.ClusterName(strings.Clone(string(o.Cluster))),
		Source:  cache.Key{Namespace: strings.Clone(o.Key.Namespace), Name: strings.Clone(o.SourceName)},
	}
}

func (c *Collection) order(cluster cache.ClusterName) int {
	if s, ok := c.sources[cluster]; ok {
		return s.joined
	}
	return math.MaxInt
}

// Resource implements cache.Collection.
func (c *Collection) Resource() cache.Resource { return c.Config.Resource }

// Snapshot implements cache.Collection.
func (c *Collection) Snapshot(ctx context.Context, at cache.Version) (cache.Snapshot, error) {
	return c.store.Snapshot(ctx, at)
}

// Get implements cache.Collection.
func (c *Collection) Get(ctx context.Context, key cache.Key, at cache.Version) (*cache.Object, error) {
	return c.store.Get(ctx, key, at)
}

// Watch implements cache.Collection.
func (c *Collection) Watch(ctx context.Context, from uint64) (cache.Watcher, error) {
	return c.store.Watch(ctx, from)
}

// Stats implements cache.Collection.
func (c *Collection) Stats() cache.Stats { return c.store.Stats() }

// Store gives the history to those who measure it.
func (c *Collection) Store() *store.Store { return c.store }

// ServedName implements cache.Collection.
func (c *Collection) ServedName(cluster cache.ClusterName, namespace, sourceName string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	h := names.Holder{Cluster: cluster, Source: cache.Key{Namespace: namespace, Name: sourceName}}
	return c.where(h).Name
}

// FindSource implements cache.Collection.
func (c *Collection) FindSource(cluster cache.ClusterName, namespace, sourceName string) (*cache.Object, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.findLocked(names.Holder{Cluster: cluster, Source: cache.Key{Namespace: namespace, Name: sourceName}})
}

func (c *Collection) findLocked(h names.Holder) (*cache.Object, bool) {
	o, ok := c.store.At(c.where(h))
	if !ok || holderOf(o) != h {
		return nil, false
	}
	return o, true
}

// Holder implements cache.Collection.
func (c *Collection) Holder(key cache.Key) (cache.ClusterName, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.follow != nil {
		o, ok := c.store.At(key)
		if !ok {
			return "", false
		}
		return o.Cluster, true
	}
	return c.names.Holder(key, c.Now.Now())
}

// Reserve implements cache.Collection.
func (c *Collection) Reserve(key cache.Key, cluster cache.ClusterName) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow != nil {
		return nil, fmt.Errorf("reserve %s: %w", key, ErrFollows)
	}
	if !c.names.Reserve(key, cluster, c.Now.Now()) {
		return nil, fmt.Errorf("%w: %s", cache.ErrHeld, key)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.apply(c.names.Release(key, cluster, c.Now.Now()), "a reservation ended")
		c.flushLocked()
	}), nil
}

// Tick ends reservations that are over and history that is too old.
func (c *Collection) Tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow != nil {
		c.record()
		c.store.Trim()
		return
	}
	if moves := c.names.Expire(c.now()); len(moves) > 0 {
		c.apply(moves, "a reservation ended")
		c.flushLocked()
	}
	c.record()
	c.store.Trim()
}

// Close ends all readers.
func (c *Collection) Close() { c.store.Close() }

// OnError sets who is told of objects that cannot be served.
func (c *Collection) OnError(fn func(err error, cluster cache.ClusterName)) { c.failed = fn }

func (c *Collection) fail(err error, cluster cache.ClusterName) {
	if c.failed != nil && err != nil {
		c.failed(err, cluster)
	}
}

// flushLocked wakes readers and those who wait for a source's position.
func (c *Collection) flushLocked() {
	c.record()
	c.store.Publish()
	close(c.moved)
	c.moved = make(chan struct{})
}

// changed returns the channel that is closed at the next flush.
func (c *Collection) changed() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.moved
}

func (c *Collection) event(typ cache.EventType, o, prev *cache.Object) *cache.Event {
	return &cache.Event{Type: typ, Object: o, Prev: prev, RV: o.RV, Time: c.now()}
}

func (c *Collection) now() time.Time { return c.Now.Now() }
