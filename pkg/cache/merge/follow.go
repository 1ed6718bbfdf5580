package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
)

// A collection that follows the log of another process:
//
//	Stream of the other -> Follower.Take -> store (bytes and RVs as they are)
//	                                     -> sources, for Gaps and for Lead
//	Lead -> names, positions: the feeds go on from where the other was
//
// While it follows, nothing else writes: no feed, no clock, no names.
type following struct {
	// aliases are the objects that are served under another name than their own.
	aliases map[names.Holder]cache.Key
	loaded  bool // it had a complete state once
}

// ErrFollows is wrapped by what only the process that numbers events can do.
var ErrFollows = errors.New("this process follows the log of another")

// errTakenOver is why a source is not live yet after Lead.
var errTakenOver = errors.New("not reached since this replica has taken over")

// readAliases finds the aliases of what was restored or replaced. c.mu is held.
func (c *Collection) readAliases() {
	f := c.follow
	f.aliases = map[names.Holder]cache.Key{}
	c.store.Present().Scan(func(o *cache.Object) bool {
		f.note(o, true)
		return true
	})
}

// note keeps the aliases as the objects are.
func (f *following) note(o *cache.Object, there bool) {
	if o.Key.Name == o.SourceName {
		return
	}
	h := keptHolder(o)
	if key := (cache.Key{Namespace: h.Source.Namespace, Name: strings.Clone(o.Key.Name)}); there {
		f.aliases[h] = key
	} else if f.aliases[h] == key {
		delete(f.aliases, h)
	}
}

func (f *following) where(h names.Holder) cache.Key {
	if key, ok := f.aliases[h]; ok {
		return key
	}
	return h.Source
}

// where is the key that an object is, or would be, served under. c.mu is held.
func (c *Collection) where(h names.Holder) cache.Key {
	if c.follow != nil {
		return c.follow.where(h)
	}
	return c.names.Where(h, c.Now.Now())
}

// Head is the RV of the last event.
func (c *Collection) Head() uint64 { return c.store.Head() }

// Loaded says whether a collection that follows has had a complete state.
func (c *Collection) Loaded() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.follow == nil || c.follow.loaded
}

// Follower takes the frames of one stream.
type Follower struct {
	c     *Collection
	state replicaState // of the complete state that is being read
	fresh *store.Store
	fill  *store.Restore
	live  bool // a complete state or a resumption has come
	// staged are events that wait for the state after them: some of them alone
	// are no moment of the other process, as half of a change of names.
	staged []*cache.Event
}

// Follower takes a new stream, which begins anywhere behind the present head.
func (c *Collection) Follower() *Follower { return &Follower{c: c} }

// Live says whether the stream has come to what happens now.
func (f *Follower) Live() bool { return f.live }

// Take applies one frame. After an error the stream is given up; what was
// applied stays and is a moment of the other process.
func (f *Follower) Take(kind byte, payload []byte) error {
	switch kind {
	case frameResumed:
		f.live, f.fill, f.fresh = true, nil, nil
		return nil
	case frameReplica:
		var st replicaState
		if err := json.Unmarshal(payload, &st); err != nil {
			return fmt.Errorf("%w: %w", journal.ErrDamaged, err)
		}
		if f.live {
			events := f.staged
			f.staged = nil
			return f.c.followState(events, st)
		}
		return f.begin(st)
	case frameEvents:
		if !f.live {
			break
		}
		events, err := store.LoadEvents(f.c.store.Packer(), payload)
		f.staged = append(f.staged, events...)
		return err
	case frameHistory, frameObjects, frameEnd:
		if f.fill == nil || f.live {
			break
		}
		return f.complete(kind, payload)
	}
	return fmt.Errorf("%w: frame of kind %q where none may be", journal.ErrDamaged, kind)
}

func (f *Follower) begin(st replicaState) error {
	if f.fill != nil || st.From > st.Head {
		return fmt.Errorf("%w: a complete state begins twice, or after its end", journal.ErrDamaged)
	}
	c := f.c
	f.state = st
	f.fresh = store.New(0, c.Config.Limits, c.Now, c.store.Packer())
	f.fill = f.fresh.Restore(st.Head, st.From)
	return nil
}

func (f *Follower) complete(kind byte, payload []byte) error {
	switch kind {
	case frameHistory:
		return f.fill.History(payload)
	case frameObjects:
		return f.fill.Objects(payload)
	}
	f.fill.Kept(f.state.Gaps)
	if err := f.c.followAnew(f.fresh, f.state); err != nil {
		return err
	}
	f.live, f.fresh, f.fill = true, nil, nil
	return nil
}

// followAnew puts a complete state of the other process in the place of what
// was there.
func (c *Collection) followAnew(fresh *store.Store, st replicaState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow == nil {
		return errLeads
	}
	if st.Head < c.store.Head() {
		return fmt.Errorf("%w: a complete state of %d after %d", journal.ErrForeign, st.Head, c.store.Head())
	}
	c.stopJournal(nil) // a new one begins with a complete state
	c.store.Replace(fresh)
	c.sources = map[cache.ClusterName]*Source{}
	c.takeState(st)
	c.readAliases()
	c.follow.loaded = true
	c.flushLocked()
	return nil
}

var errLeads = errors.New("this process numbers events itself")

// followEvents applies events as they are, all of them or none. Those that are
// here already come again where a stream has begun before the head. c.mu is held.
func (c *Collection) followEvents(events []*cache.Event) error {
	head := c.store.Head()
	events = slices.DeleteFunc(events, func(e *cache.Event) bool { return e.RV <= head })
	if err := c.store.Follows(events...); err != nil {
		return err
	}
	for _, e := range events {
		e.Object.Body = cache.Bytes(e.Object.Raw())
		c.commit(e)
		c.follow.note(e.Object, e.Type != cache.Deleted)
	}
	return nil
}

// followState takes events and the state after them, and shows both.
func (c *Collection) followState(events []*cache.Event, st replicaState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow == nil {
		return errLeads
	}
	if st.Head < c.store.Head() {
		return fmt.Errorf("%w: state of %d after %d", journal.ErrForeign, st.Head, c.store.Head())
	}
	if err := c.followEvents(events); err != nil {
		return err
	}
	if !slices.Equal(c.store.Gaps(), st.Gaps) {
		c.journal.gaps = false // they are written anew
	}
	c.store.Advance(st.Head, st.Gaps)
	c.takeState(st)
	c.follow.loaded = true
	c.flushLocked()
	if c.store.Pressed() {
		c.mu.Unlock()
		c.store.Pack()
		c.mu.Lock()
	}
	return nil
}

func (c *Collection) takeState(st replicaState) {
	c.pending = st.Pending
	for _, name := range st.Gone {
		delete(c.sources, name)
	}
	for name, r := range st.Sources {
		s, ok := c.sources[name]
		if !ok {
			s = &Source{c: c, name: name, exists: true, restored: true, injected: map[names.Holder]uint64{}}
			c.sources[name] = s
		}
		s.joined, s.state = r.Order, r.state()
		if r.UID != "" || name == cache.ControlPlane {
			c.Config.Identities.Set(name, types.UID(r.UID))
		}
	}
}

// Lead ends the following: from now on the clock, which has been started, gives
// the numbers. RVs that the other process may have given out after what has come
// here are expired. Feeds that are joined now go on from where the other was.
func (c *Collection) Lead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follow == nil {
		return
	}
	loaded := c.follow.loaded || c.store.Head() > 0
	c.follow = nil
	c.store.Skip(c.store.Head(), c.Clock.Next())
	c.journal.gaps = false
	for _, s := range c.sources {
		if s.state.Connected {
			s.state.Since = c.now()
		}
		s.state.Connected, s.state.Err = false, errTakenOver
	}
	if loaded {
		c.restoreNames()
	}
	c.flushLocked()
}
