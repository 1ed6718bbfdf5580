package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
)

// Kinds of frames.
const (
	frameState   byte = 'S' // positions of sources, head and beginning of the history
	frameHistory byte = 'C'
	frameObjects byte = 'B'
	frameEvents  byte = 'J'
)

// journaling is how far the state on disk has got. c.mu guards it.
type journaling struct {
	log     *journal.Writer // nil where nothing is written
	pending []*cache.Event
	// As written last.
	head    uint64
	sources map[cache.ClusterName]savedSource
	gaps    bool // those of the store are written
	failed  error
}

// savedState is what a process that goes on needs beside objects and events.
type savedState struct {
	Head    uint64                            `json:"head"`
	From    uint64                            `json:"from,omitempty"`
	Gaps    []store.Gap                       `json:"gaps,omitempty"`
	Sources map[cache.ClusterName]savedSource `json:"sources"`
}

type savedSource struct {
	Order    int    `json:"order"`
	Synced   bool   `json:"synced"`
	Position uint64 `json:"position"`
	// Since is the last time that the source was heard, in Unix seconds.
	Since int64 `json:"since"`
	// Gone says that the source has left.
	Gone bool `json:"gone,omitempty"`
}

func (s savedSource) same(o savedSource) bool {
	return s.Order == o.Order && s.Synced == o.Synced && s.Position == o.Position
}

// savedState is what differs from what was written before, and the gaps where
// they were not.
func (c *Collection) savedState(before map[cache.ClusterName]savedSource, gaps bool) savedState {
	st := savedState{Head: c.store.Head(), Sources: map[cache.ClusterName]savedSource{}}
	if !gaps {
		st.Gaps = c.store.Gaps()
	}
	for name, s := range c.sources {
		if !s.exists {
			continue
		}
		now := savedSource{Order: s.joined, Synced: s.state.Synced, Position: s.state.Position, Since: s.state.LastEvent.Unix()}
		if was, ok := before[name]; !ok || !was.same(now) {
			st.Sources[name] = now
		}
	}
	for name := range before {
		if s, ok := c.sources[name]; !ok || !s.exists {
			st.Sources[name] = savedSource{Gone: true}
		}
	}
	return st
}

func (c *Collection) commit(e *cache.Event) {
	c.store.Commit(e)
	if c.journal.log != nil {
		c.journal.pending = append(c.journal.pending, e)
	}
}

// record hands what has happened to the system before anybody sees it: events
// and positions in one frame each, written together. c.mu is held.
func (c *Collection) record() {
	j := &c.journal
	if j.log == nil {
		return
	}
	st := c.savedState(j.sources, j.gaps)
	events := len(j.pending) > 0
	if !events && st.Head == j.head && len(st.Sources) == 0 && len(st.Gaps) == 0 {
		return
	}
	var err error
	if events {
		packer := c.store.Packer()
		err = j.log.Write(frameEvents, store.AppendEvents(nil, packer, j.pending, false))
		j.pending = nil
	}
	if b, encodeErr := json.Marshal(st); encodeErr != nil {
		err = errors.Join(err, encodeErr)
	} else if err == nil {
		err = j.log.Write(frameState, b)
	}
	if err = errors.Join(err, j.log.Flush()); err != nil {
		c.stopJournal(fmt.Errorf("log of the cache: %w", err))
		return
	}
	j.written(st)
}

func (j *journaling) written(st savedState) {
	j.head, j.gaps = st.Head, true
	for name, s := range st.Sources {
		if s.Gone {
			delete(j.sources, name)
		} else {
			j.sources[name] = s
		}
	}
}

// stopJournal ends the journal: what is on disk stays as it was at that moment,
// which is a state to go on from, only an older one.
func (c *Collection) stopJournal(err error) {
	j := &c.journal
	if j.log != nil {
		err = errors.Join(err, j.log.Close())
	}
	j.log, j.pending, j.failed = nil, nil, err
}

// FailJournal makes the log fail as on a full disk, for tests.
func (c *Collection) FailJournal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.log.Fail(errors.New("no space left on device"))
}

// JournalState says how many bytes the log has, and why there is none.
func (c *Collection) JournalState() (size int64, on bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.journal.log == nil {
		return 0, false, c.journal.failed
	}
	return c.journal.log.Size(), true, nil
}

// AnySynced says whether there is anything worth to be kept.
func (c *Collection) AnySynced() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.sources {
		if s.state.Synced {
			return true
		}
	}
	return false
}

// SaveLog makes what was recorded survive the end of the machine.
func (c *Collection) SaveLog() error {
	c.mu.Lock()
	c.record()
	log := c.journal.log
	c.mu.Unlock()
	if log == nil {
		return nil
	}
	return log.Sync()
}

// Save writes a complete state, beside the work; what changes meanwhile and
// afterwards goes into its log. One call at a time.
func (c *Collection) Save(dir *journal.Dir) error {
	c.store.PackAll() // what is packed is written as it is
	g, err := dir.Begin()
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.journal.log == nil {
			c.journal.failed = err
		}
		return err
	}
	c.mu.Lock()
	c.flushLocked()
	if old := c.journal.log; old != nil {
		if err := old.Close(); err != nil { // nothing is lost by it: the base comes
			c.fail(err, "")
		}
	}
	st, dump := c.savedState(nil, false), c.store.Dump()
	c.journal = journaling{log: g.Log, sources: map[cache.ClusterName]savedSource{}}
	c.journal.written(st)
	c.mu.Unlock()
	st.From = dump.From
	if err := writeBase(g.Base, st, dump); err != nil {
		return errors.Join(err, g.Abort())
	}
	return g.Commit()
}

func writeBase(w *journal.Writer, st savedState, dump *store.Dump) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if err := w.Write(frameState, b); err != nil {
		return fmt.Errorf("state of the cache: %w", err)
	}
	if err := dump.History(func(b []byte) error { return w.Write(frameHistory, b) }); err != nil {
		return fmt.Errorf("state of the cache: %w", err)
	}
	if err := dump.Objects(func(b []byte) error { return w.Write(frameObjects, b) }); err != nil {
		return fmt.Errorf("state of the cache: %w", err)
	}
	return nil
}

// errRestarted is why a source whose state was restored is not live yet.
var errRestarted = errors.New("not reached since this process has started")

// Load restores what Save has written. It is called before anything else, on an
// empty collection; where it fails the collection must be made anew. found is
// false where there is nothing.
func (c *Collection) Load(dir *journal.Dir) (found bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var st savedState
	var r *store.Restore
	load := func(kind byte, payload []byte) error {
		switch {
		case kind == frameState:
			if err := json.Unmarshal(payload, &st); err != nil {
				return fmt.Errorf("%w: %w", journal.ErrDamaged, err)
			}
			if r == nil {
				r = c.store.Restore(st.Head, st.From)
			}
			return nil
		case r == nil:
			return fmt.Errorf("%w: it does not begin with its state", journal.ErrDamaged)
		case kind == frameHistory:
			return r.History(payload)
		case kind == frameObjects:
			return r.Objects(payload)
		case kind == frameEvents:
			return r.Events(payload)
		}
		return fmt.Errorf("%w: frame of kind %q", journal.ErrDamaged, kind)
	}
	found, err = dir.Read(load, load)
	if err != nil || !found {
		return found, err
	}
	if err := c.loaded(st, r); err != nil {
		return true, err
	}
	log, err := dir.Continue()
	if err != nil { // served all the same; a state is written when that works again
		c.journal.failed = err
		return true, nil
	}
	c.journal = journaling{log: log, sources: map[cache.ClusterName]savedSource{}}
	c.record()
	return true, nil
}

// loaded makes what was read the present state: one to go on from, or one whose
// rest another process has.
func (c *Collection) loaded(st savedState, r *store.Restore) error {
	if r == nil {
		return fmt.Errorf("%w: no state", journal.ErrDamaged)
	}
	if c.Config.Follow {
		c.store.Advance(st.Head, nil)
		r.Kept(st.Gaps)
		c.restoreSources(st)
		c.readAliases()
		return nil
	}
	now := c.Clock.Next()
	if max(st.Head, c.store.Head()) >= now {
		return fmt.Errorf("%w: it is ahead of the reserved resourceVersions", journal.ErrForeign)
	}
	r.Done(st.Head, now, st.Gaps)
	c.restoreSources(st)
	c.restoreNames()
	return nil
}

func (c *Collection) restoreSources(st savedState) {
	for name, saved := range st.Sources {
		if saved.Gone {
			continue
		}
		s := &Source{c: c, name: name, joined: saved.Order, exists: true, restored: true, injected: map[names.Holder]uint64{}}
		s.state = State{Since: c.now(), Synced: saved.Synced, EverSynced: saved.Synced, Position: saved.Position, Err: errRestarted}
		if saved.Since > 0 {
			s.state.LastEvent = time.Unix(saved.Since, 0)
			s.state.Since = s.state.LastEvent
		}
		c.sources[name] = s
	}
}

// restoreNames finds out which names are contested, kept or changed, and which
// objects are ahead of what their feed had passed.
func (c *Collection) restoreNames() {
	type alias struct {
		holder names.Holder
		key    cache.Key
	}
	var aliases []alias
	c.store.Present().Scan(func(o *cache.Object) bool {
		if o.Key.Name != o.SourceName {
			h := keptHolder(o)
			aliases = append(aliases, alias{h, cache.Key{Namespace: h.Source.Namespace, Name: strings.Clone(o.Key.Name)}})
		}
		if s, ok := c.sources[o.Cluster]; ok && o.SourceRV > s.state.Position {
			s.injected[keptHolder(o)] = o.SourceRV
		}
		return true
	})
	for _, a := range aliases {
		c.names.Restore(a.holder, a.key)
		c.renamed(a.holder, a.key.Name)
	}
	if c.Config.Resource.Kind == "Event" {
		return
	}
	objects, at := c.store.Deleted()
	for i, o := range objects {
		if until := at[i].Add(names.Keep); o.Key.Name == o.SourceName && c.now().Before(until) {
			c.names.RestoreKept(holderOf(o), until)
		}
	}
}

// Restored lists the sources whose state was restored and that nobody has
// joined since.
func (c *Collection) Restored() []cache.ClusterName {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []cache.ClusterName
	for name, s := range c.sources {
		if s.restored {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// ResumePoint is the RV from which a feed goes on after a restart; empty where
// it reads the source anew. What is hidden is not written down, so that kinds
// with hidden objects are read as a difference.
func (s *Source) ResumePoint() string {
	s.c.mu.RLock()
	defer s.c.mu.RUnlock()
	res := s.c.Config.Resource
	if !s.state.Synced || s.state.Position == 0 || res.FromControlPlane && res.Kind != "Event" {
		return ""
	}
	return fmt.Sprint(s.state.Position)
}
