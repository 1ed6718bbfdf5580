package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// Tail is what was committed after a moment.
type Tail struct {
	Head  uint64
	parts []part
}

// Each calls fn with the events, some at a time, in order.
func (t Tail) Each(fn func([]*cache.Event) error) error {
	for _, p := range t.parts {
		if err := fn(p.read()); err != nil {
			return err
		}
	}
	return nil
}

// Since gives what was committed after an RV, whether watchers see it already or
// not. A moment that this history does not know is ErrExpired, one from the
// future too: it is of another history.
func (s *Store) Since(rv uint64) (Tail, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if rv < s.log.from || rv > s.head || s.lost(rv) {
		return Tail{}, fmt.Errorf("%w: %d, the history is from %d to %d", cache.ErrExpired, rv, s.log.from, s.head)
	}
	return Tail{Head: s.head, parts: s.log.between(rv, s.head)}, nil
}

// LoadEvents reads what AppendEvents has written without the state before each.
func LoadEvents(p *pack.Packer, in []byte) ([]*cache.Event, error) {
	marks, in, err := loadMarks(in)
	if err != nil {
		return nil, err
	}
	b, _, err := p.Load(in)
	if err != nil {
		return nil, err
	}
	objects := b.Objects()
	if len(objects) != len(marks) {
		return nil, fmt.Errorf("%w: %d events with %d objects", pack.ErrMalformed, len(marks), b.Len())
	}
	events := make([]*cache.Event, len(marks))
	for i, m := range marks {
		events[i] = &cache.Event{Type: m.kind, Object: objects[i], RV: m.rv, Time: time.Unix(0, m.time)}
	}
	return events, nil
}

// Follows says whether events can come next, one after the other, and fills in
// the state before each. Nothing else changes.
func (s *Store) Follows(events ...*cache.Event) error {
	last, changed := s.Head(), map[cache.Key]*cache.Object{}
	for _, e := range events {
		prev, known := changed[e.Object.Key]
		there := prev != nil
		if !known {
			prev, there = s.At(e.Object.Key)
		}
		if e.RV <= last || there != (e.Type != cache.Added) {
			return fmt.Errorf("%w: event %d of %s does not follow from what was there", pack.ErrMalformed, e.RV, e.Object.Key)
		}
		if there {
			e.Prev = prev
		}
		last, changed[e.Object.Key] = e.RV, e.Object
		if e.Type == cache.Deleted {
			changed[e.Object.Key] = nil
		}
	}
	return nil
}

// Kept ends the restoring of a store that goes on where another process is: the
// RVs that it has are those of the other.
func (r *Restore) Kept(gaps []Gap) {
	r.store.gaps = slices.Clone(gaps)
	r.store.Publish()
}

// Advance moves the head to that of a process whose log is followed, when all
// its events up to there are committed. gaps are those of its history.
func (s *Store) Advance(head uint64, gaps []Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if head > s.head {
		s.head, s.current = head, nil
	}
	s.gaps = slices.Clone(gaps)
}

// Replace puts another store's state in the place of this one's. Readers of
// moments keep theirs; watchers end, and go on by their RV in the other history.
// The other store is not used any more.
func (s *Store) Replace(o *Store) {
	s.packing.Lock()
	defer s.packing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.base.blocks {
		b.Retire()
	}
	s.hot, s.hotBytes, s.base, s.count, s.head = o.hot, o.hotBytes, o.base, o.count, o.head
	s.log, s.counts, s.bytes, s.gaps = o.log, o.counts, o.bytes, o.gaps
	s.current, s.recent = nil, recent{}
	s.life++
	s.wakeLocked()
}
