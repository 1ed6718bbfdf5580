package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// observeWait is how long a completed write waits for the feed.
const observeWait = time.Second

// await waits until done, called with the lock held for reading, answers true.
func (c *Collection) await(ctx context.Context, wait time.Duration, done func() bool) error {
	timeout := c.Now.NewTimer(wait)
	defer timeout.Stop()
	for {
		c.mu.RLock()
		ok, moved := done(), c.moved
		c.mu.RUnlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C():
			return context.DeadlineExceeded
		}
	}
}

// Observe implements cache.Collection.
func (c *Collection) Observe(ctx context.Context, cluster cache.ClusterName, namespace, sourceName string, sourceRV uint64, raw []byte) (*cache.Object, error) {
	h := names.Holder{Cluster: cluster, Source: cache.Key{Namespace: namespace, Name: sourceName}}
	var found *cache.Object
	var present bool
	err := c.await(ctx, observeWait, func() bool {
		found, present = c.findLocked(h)
		if present && found.SourceRV >= sourceRV {
			return true
		}
		s, ok := c.sources[cluster]
		return ok && s.state.Position >= sourceRV
	})
	switch {
	case err == nil && present:
		return c.asWritten(found, sourceRV), nil
	case err == nil:
		return nil, nil
	case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		return nil, err
	}
	return c.inject(h, sourceRV, raw)
}

// writtenBack is how many events back a write's own is looked for. One that is
// further back is answered with the object as it is now.
const writtenBack = 4096

// asWritten is the object as it was served at a write's own event, when others
// have changed it since.
func (c *Collection) asWritten(now *cache.Object, sourceRV uint64) *cache.Object {
	if now.SourceRV <= sourceRV {
		return now
	}
	e := c.store.Past(writtenBack, func(e *cache.Event) bool {
		o := e.Object
		return o.SourceRV == sourceRV && o.Cluster == now.Cluster && o.UID == now.UID && e.Type != cache.Deleted
	})
	if e == nil {
		return now
	}
	return e.Object
}

// Inject puts in a record as Observe does once it has waited in vain.
func (c *Collection) Inject(cluster cache.ClusterName, namespace, sourceName string, sourceRV uint64, raw []byte) error {
	_, err := c.inject(names.Holder{Cluster: cluster, Source: cache.Key{Namespace: namespace, Name: sourceName}}, sourceRV, raw)
	return err
}

// inject puts in a record that the feed has not brought yet. What the feed has
// passed it never overrides, and so it cannot bring back what was deleted.
func (c *Collection) inject(h names.Holder, sourceRV uint64, raw []byte) (*cache.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow != nil {
		return nil, fmt.Errorf("record of %s: %w", h.Source, ErrFollows)
	}
	s, ok := c.sources[h.Cluster]
	if !ok {
		return nil, fmt.Errorf("%w: no source %q", cache.ErrNotFound, h.Cluster)
	}
	prev, served := c.findLocked(h)
	if raw == nil || s.state.Position >= sourceRV || served && prev.SourceRV >= sourceRV || s.injected[h] > sourceRV {
		return prev, nil
	}
	r, err := s.read(raw)
	if err != nil {
		return nil, err
	}
	if r.holder != h || r.sourceRV != sourceRV {
		return nil, fmt.Errorf("%w: record of %s at %d where %s at %d belongs", wire.ErrMalformed, r.holder.Source, r.sourceRV, h.Source, sourceRV)
	}
	if err := s.put(r); err != nil {
		return nil, err
	}
	s.injected[h] = sourceRV
	delete(s.unseen, h)
	c.flushLocked()
	found, _ := c.findLocked(h)
	return found, nil
}

// ObserveDeleted implements cache.Collection.
func (c *Collection) ObserveDeleted(ctx context.Context, cluster cache.ClusterName, namespace, sourceName string, uid types.UID) error {
	h := names.Holder{Cluster: cluster, Source: cache.Key{Namespace: namespace, Name: sourceName}}
	err := c.await(ctx, observeWait, func() bool {
		o, ok := c.findLocked(h)
		was, wasHidden := c.hidden[h]
		return (!ok || o.UID != uid) && (!wasHidden || was.uid != uid)
	})
	if err != nil {
		return fmt.Errorf("the end of %s in %q is not seen yet: %w", h.Source, cluster, err)
	}
	return nil
}

// Gaps implements cache.Collection.
func (c *Collection) Gaps() []cache.Gap {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var gaps []cache.Gap
	for name, s := range c.sources {
		if gap, ok := s.state.gap(name); ok {
			gaps = append(gaps, gap)
		}
	}
	if c.pending {
		gaps = append(gaps, cache.Gap{Cluster: cache.AllClusters, Kind: cache.NotLoaded, Reason: "the list of clusters is not read yet"})
	}
	slices.SortFunc(gaps, func(a, b cache.Gap) int { return strings.Compare(string(a.Cluster), string(b.Cluster)) })
	return gaps
}

// gap says what is wrong with a source, if anything is.
func (s State) gap(name cache.ClusterName) (cache.Gap, bool) {
	g := cache.Gap{Cluster: name, Since: s.Since, Reason: "not loaded yet"}
	if s.Err != nil {
		g.Reason = s.Err.Error()
	}
	switch {
	case s.Synced && s.Connected:
		return cache.Gap{}, false
	case s.Synced:
		g.Kind = cache.Stale
	case s.Absent:
		g.Kind = cache.NeverSynced
		g.Reason = "declared absent"
	case s.EverSynced:
		g.Kind = cache.NotLoaded
	default:
		g.Kind = cache.NeverSynced
	}
	return g, true
}

// AwaitLoaded waits until no source is NotLoaded.
func (c *Collection) AwaitLoaded(ctx context.Context) error {
	for {
		moved := c.changed()
		var missing []cache.Gap
		for _, g := range c.Gaps() {
			if g.Kind == cache.NotLoaded {
				missing = append(missing, g)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return &cache.NotLoadedError{Gaps: missing}
		}
	}
}

// SetPending says whether sources are still to join that nobody has named yet:
// until they have, the collection is not loaded.
func (c *Collection) SetPending(pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = pending
	c.flushLocked()
}

// SetAbsent says whether anybody is to wait for a source.
func (c *Collection) SetAbsent(name cache.ClusterName, absent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.sources[name]; ok {
		s.state.Absent = absent
		c.flushLocked()
	}
}

// States gives the state of every source.
func (c *Collection) States() map[cache.ClusterName]State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	states := make(map[cache.ClusterName]State, len(c.sources))
	for name, s := range c.sources {
		states[name] = s.state
	}
	return states
}

// Reresolve serves anew every object whose references may have changed.
func (c *Collection) Reresolve(changes map[cache.ClusterName]Changes) {
	var touched []names.Holder
	c.store.Present().Scan(func(o *cache.Object) bool {
		if ch, ok := changes[o.Cluster]; ok && ch.touch(c.look.Table, o) {
			touched = append(touched, keptHolder(o))
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	touched = append(touched, c.hiddenOf(changes)...)
	for _, h := range touched {
		if err := c.reresolve(h); err != nil {
			c.fail(err, h.Cluster)
		}
	}
	if len(touched) > 0 {
		c.flushLocked()
	}
}

func (c *Collection) hiddenOf(changes map[cache.ClusterName]Changes) (touched []names.Holder) {
	for h, was := range c.hidden {
		if _, ok := changes[h.Cluster].Owners[was.owner]; ok {
			touched = append(touched, h)
		}
	}
	return touched
}

// reresolve looks at one object again: it may be served anew, be hidden, or be
// hidden no longer.
func (c *Collection) reresolve(h names.Holder) error {
	s, ok := c.sources[h.Cluster]
	if !ok {
		return nil
	}
	if was, ok := c.hidden[h]; ok {
		r, err := s.read(was.raw)
		if err != nil {
			return err
		}
		return s.put(r)
	}
	prev, ok := c.findLocked(h)
	if !ok {
		return nil
	}
	meta, err := wire.ParseMeta(c.Config.Resource.Encoding, prev.Raw())
	if err != nil {
		return err
	}
	meta.Name, meta.Owners = prev.SourceName, nil
	if prev.Origin != nil {
		meta.Owners = prev.Origin.Owners
	}
	if target, hide := references.Classify(c.Config.Resource, h.Cluster, &meta, c.Index); hide {
		raw, err := c.source(prev)
		if err != nil {
			return err
		}
		c.Index.Set(h.Cluster, prev.UID, target, true)
		c.hidden[h] = &hidden{uid: prev.UID, sourceRV: prev.SourceRV, owner: controller(meta.Owners), raw: raw}
		c.remove(prev, prev.SourceRV, prev.Raw())
		return nil
	}
	if !c.differs(prev) {
		return nil
	}
	return c.change(identityOf(prev), prev.Key, prev.Raw(), prev)
}

// freshEvery is how often a strict read looks whether the feed has caught up:
// the look costs as much as the source is large.
const freshEvery = 20 * time.Millisecond

// AwaitSource waits until the objects of a source are here as they were seen in
// it at an RV: each at its version or a later one, and none that was gone.
func (c *Collection) AwaitSource(ctx context.Context, cluster cache.ClusterName, rv uint64, seen map[cache.Key]uint64) error {
	for !c.caughtUp(cluster, rv, seen) {
		timer := c.Now.NewTimer(freshEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

func (c *Collection) caughtUp(cluster cache.ClusterName, rv uint64, seen map[cache.Key]uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.sources[cluster]
	if !ok || !s.state.Connected {
		return false
	}
	if s.state.Position >= rv {
		return true
	}
	for key, at := range seen {
		h := names.Holder{Cluster: cluster, Source: key}
		if was, ok := c.hidden[h]; ok && was.sourceRV >= at {
			continue
		}
		if o, ok := c.findLocked(h); !ok || o.SourceRV < at {
			return false
		}
	}
	return !c.leftOver(cluster, rv, seen)
}

// leftOver says whether the source has an object here that is not younger than
// an RV and was not seen then.
func (c *Collection) leftOver(cluster cache.ClusterName, rv uint64, seen map[cache.Key]uint64) (found bool) {
	c.store.Present().Scan(func(o *cache.Object) bool {
		if o.Cluster == cluster && o.SourceRV <= rv {
			_, ok := seen[holderOf(o).Source]
			found = !ok
		}
		return !found
	})
	return found
}
