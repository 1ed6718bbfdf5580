package merge

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// State is how far a source has got.
//
//	joined --complete state--> synced <--> disconnected (objects stay)
//	   any --Remove--> gone (objects are DELETED)
type State struct {
	Synced     bool // its complete state was there once in this process
	Connected  bool // the feed is live
	EverSynced bool // it was synced once, by whatever process
	Absent     bool // an operator declared that nobody is to wait for it
	Since      time.Time
	LastEvent  time.Time
	Position   uint64 // highest source RV up to which everything is here
	Err        error  // why it is not connected
}

// Source is one source of a collection. Its methods are called by one feed,
// one after the other.
type Source struct {
	c      *Collection
	name   cache.ClusterName
	joined int

	// Guarded by c.mu.
	state    State
	exists   bool
	restored bool // from the disk, and nobody has joined it yet
	// injected are records that came before the feed had them, by RV: the feed
	// must not go back behind them.
	injected map[names.Holder]uint64
	// unseen is filled while a complete state is read: what is left at its
	// end is gone. nil outside of one.
	unseen map[names.Holder]struct{}
}

// Join adds a source, or moves it in the join order.
func (c *Collection) Join(name cache.ClusterName, order int, everSynced bool) *Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sources[name]
	if !ok {
		s = &Source{c: c, name: name, joined: order, exists: true, injected: map[names.Holder]uint64{}}
		s.state = State{EverSynced: everSynced, Since: c.now()}
		c.sources[name] = s
		return s
	}
	s.restored = false
	s.state.EverSynced = s.state.EverSynced || everSynced
	if s.joined != order {
		s.joined = order
		c.apply(c.names.Resettle(c.now()), "the join order changed")
		c.flushLocked()
	}
	return s
}

// removeBatch is how many objects go between two chances for readers.
const removeBatch = 500

// Remove ends a source: its objects are DELETED.
func (c *Collection) Remove(name cache.ClusterName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sources[name]
	if !ok {
		return
	}
	s.exists = false // nothing is put any more
	for i, o := range c.objectsOf(name) {
		if i%removeBatch == removeBatch-1 {
			c.flushLocked()
			c.mu.Unlock()
			c.mu.Lock()
		}
		// Names pass to other clusters meanwhile; the key is the present one.
		if prev, ok := c.findLocked(holderOf(o)); ok {
			c.remove(prev, prev.SourceRV, prev.Raw())
		}
	}
	for h, was := range c.hidden {
		if h.Cluster == name {
			c.Index.Unset(name, was.uid, c.now())
			delete(c.hidden, h)
		}
	}
	c.apply(c.names.Forget(name, c.now()), "a cluster left")
	delete(c.sources, name)
	c.flushLocked()
}

// objectsOf lists the objects of a source as they are served now.
func (c *Collection) objectsOf(name cache.ClusterName) []*cache.Object {
	var own []*cache.Object
	c.store.Present().Ascend(cache.Key{}, func(o *cache.Object) bool {
		if o.Cluster == name {
			own = append(own, o)
		}
		return true
	})
	return own
}

// record is a source's object, read.
type record struct {
	identity
	meta wire.Meta
	raw  []byte
}

func (s *Source) read(raw []byte) (record, error) {
	res := s.c.Config.Resource
	meta, err := wire.ParseMeta(res.Encoding, raw)
	if err != nil {
		return record{}, err
	}
	if meta.Name == "" || res.Namespaced != (meta.Namespace != "") {
		return record{}, fmt.Errorf("%w: namespace %q and name %q", wire.ErrMalformed, meta.Namespace, meta.Name)
	}
	// A number that cannot be compared counts as unknown, and so as new.
	rv, _ := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	key := cache.Key{Namespace: unique.Make(meta.Namespace).Value(), Name: strings.Clone(meta.Name)}
	return record{
		identity: identity{
			holder:   names.Holder{Cluster: s.name, Source: key},
			uid:      types.UID(strings.Clone(meta.UID)),
			sourceRV: rv,
		},
		meta: meta,
		raw:  raw,
	}, nil
}

// overtaken says whether an observed write is newer than what the feed brings;
// once the feed has caught up the write is forgotten. c.mu is held.
func (s *Source) overtaken(r record) bool {
	at, ok := s.injected[r.holder]
	if !ok {
		return false
	}
	if r.sourceRV < at {
		return true
	}
	delete(s.injected, r.holder)
	return false
}

// Put takes the state of one object. raw is not kept.
func (s *Source) Put(raw []byte) error {
	defer s.relieve()
	return s.take(raw)
}

// relieve packs what was put where it has become too much: a feed goes no
// faster than that.
func (s *Source) relieve() {
	if s.c.store.Pressed() {
		s.c.store.Pack()
	}
}

func (s *Source) take(raw []byte) error {
	r, err := s.read(raw)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.exists {
		return nil
	}
	delete(s.unseen, r.holder)
	if s.overtaken(r) {
		return nil
	}
	err = s.put(r)
	if s.unseen == nil {
		s.passed(r.sourceRV)
	}
	return err
}

// passed moves the position of a live feed.
func (s *Source) passed(rv uint64) {
	s.state.LastEvent = s.c.now()
	s.state.Position = max(s.state.Position, rv)
}

func (s *Source) put(r record) (err error) {
	c := s.c
	prev, served := c.findLocked(r.holder)
	was, wasHidden := c.hidden[r.holder]
	target, hide := references.Classify(c.Config.Resource, s.name, &r.meta, c.Index)
	switch {
	case served && prev.UID != r.uid:
		c.remove(prev, prev.SourceRV, prev.Raw())
		prev, served = nil, false
	case served && !hide && prev.SourceRV == r.sourceRV && r.sourceRV != 0:
		return nil
	}
	if wasHidden && (was.uid != r.uid || !hide) {
		c.Index.Unset(s.name, was.uid, c.now())
		delete(c.hidden, r.holder)
	}
	if hide {
		c.Index.Set(s.name, r.uid, target, served)
		c.hidden[r.holder] = &hidden{uid: r.uid, sourceRV: r.sourceRV, owner: controller(r.meta.Owners), raw: bytes.Clone(r.raw)}
		if served {
			c.remove(prev, r.sourceRV, r.raw)
		}
		return nil
	}
	if r.origin, err = references.Read(c.Config.Resource, r.raw, &r.meta); err != nil {
		return err
	}
	if !served {
		return c.add(r.identity, r.raw)
	}
	return c.change(r.identity, prev.Key, r.raw, prev)
}

func controller(owners []cache.OwnerRef) types.UID {
	for _, o := range owners {
		if o.Controller {
			return types.UID(strings.Clone(string(o.UID)))
		}
	}
	return ""
}

// Delete takes the end of an object, with its last state. raw is not kept.
func (s *Source) Delete(raw []byte) error {
	r, err := s.read(raw)
	if err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.exists {
		return nil
	}
	if s.overtaken(r) {
		return nil
	}
	s.gone(r.holder, r.uid, r.sourceRV, raw)
	s.passed(r.sourceRV)
	return nil
}

// gone ends an object, unless another of the same name has taken its place.
func (s *Source) gone(h names.Holder, uid types.UID, sourceRV uint64, raw []byte) {
	c := s.c
	if was, ok := c.hidden[h]; ok && was.uid == uid {
		c.Index.Unset(s.name, uid, c.now())
		delete(c.hidden, h)
	}
	if prev, ok := c.findLocked(h); ok && prev.UID == uid {
		if raw == nil {
			raw = prev.Raw()
		}
		c.remove(prev, sourceRV, raw)
	}
}

// Begin says that a complete state follows.
func (s *Source) Begin() {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.unseen = map[names.Holder]struct{}{}
	if !s.state.Synced && c.store.Stats().Objects[s.name] == 0 {
		return // nothing can be left over, and a first fill is large
	}
	c.store.Present().Scan(func(o *cache.Object) bool {
		if o.Cluster == s.name {
			s.unseen[keptHolder(o)] = struct{}{}
		}
		return true
	})
	for h := range c.hidden {
		if h.Cluster == s.name {
			s.unseen[h] = struct{}{}
		}
	}
}

// Abort says that the state which was begun will not become complete.
func (s *Source) Abort() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.unseen = nil
}

// End says that the state since Begin is complete as of an RV: what was not
// put is gone.
func (s *Source) End(sourceRV string) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.exists || s.unseen == nil {
		return
	}
	rv, _ := strconv.ParseUint(sourceRV, 10, 64)
	for h := range s.unseen {
		if at, ok := s.injected[h]; ok && at > rv {
			continue
		}
		if was, ok := c.hidden[h]; ok {
			s.gone(h, was.uid, rv, nil)
		}
		if prev, ok := c.findLocked(h); ok {
			s.gone(h, prev.UID, prev.SourceRV, nil)
		}
	}
	s.unseen = nil
	// A member that was restored from a backup has gone back.
	s.state.Position = rv
	s.dropInjected()
	now := c.now()
	if !s.state.Synced || !s.state.Connected {
		s.state.Since = now
	}
	s.state.Synced, s.state.EverSynced, s.state.Connected, s.state.Err = true, true, true, nil
	s.state.LastEvent = now
	c.flushLocked()
}

// Progress says that everything up to an RV is here.
func (s *Source) Progress(sourceRV string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if rv, err := strconv.ParseUint(sourceRV, 10, 64); err == nil && s.unseen == nil {
		s.passed(rv)
		s.dropInjected()
	}
}

func (s *Source) dropInjected() {
	for h, at := range s.injected {
		if at <= s.state.Position {
			delete(s.injected, h)
		}
	}
}

// Flush ends a burst: readers are woken.
func (s *Source) Flush() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.dropInjected()
	s.c.flushLocked()
}

// Connected says that a watch was resumed where it had ended.
func (s *Source) Connected() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.state.Synced && !s.state.Connected {
		s.state.Connected, s.state.Err, s.state.Since = true, nil, s.c.now()
		s.c.flushLocked()
	}
}

// Disconnected says that the source cannot be reached: its objects stay.
func (s *Source) Disconnected(err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.state.Connected {
		s.state.Since = s.c.now()
	}
	s.state.Connected, s.state.Err = false, err
	s.c.flushLocked()
}
