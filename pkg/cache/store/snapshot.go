package store

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Snapshot is one moment of a collection. It never changes.
type Snapshot struct {
	rv    uint64
	count int
	hot   *hotTree
	base  *base
}

// RV implements cache.Snapshot.
func (s *Snapshot) RV() uint64 { return s.rv }

// Len implements cache.Snapshot.
func (s *Snapshot) Len() int { return s.count }

// Ascend implements cache.Snapshot.
func (s *Snapshot) Ascend(from cache.Key, fn func(*cache.Object) bool) {
	s.AscendRuns(from, func(r cache.Run) bool {
		for _, o := range r.All() {
			if !fn(o) {
				return false
			}
		}
		return true
	})
}

// Scan calls fn with every object until it returns false. What fn keeps of an
// object it has to copy, and the bytes of one it does not ask for.
func (s *Snapshot) Scan(fn func(*cache.Object) bool) {
	s.AscendRuns(cache.Key{}, func(r cache.Run) bool {
		more := true
		each := func(o *cache.Object) bool {
			more = more && fn(o)
			return false
		}
		if r.Pack != nil {
			r.Pack.Matching(each)
		}
		for _, o := range r.Objects {
			each(o)
		}
		return more
	})
}

// Get finds one object.
func (s *Snapshot) Get(key cache.Key) (*cache.Object, bool) {
	if e, ok := s.hot.Get(entry{object: &cache.Object{Key: key}}); ok {
		if e.gone {
			return nil, false
		}
		return e.object, true
	}
	return s.base.get(key)
}

// Snapshot returns the moment that a version asks for.
func (s *Store) Snapshot(ctx context.Context, at cache.Version) (*Snapshot, error) {
	if err := s.Await(ctx, at); err != nil {
		return nil, err
	}
	if at.Match != cache.Exact {
		return s.Present(), nil
	}
	return s.exact(at.RV)
}

// Present is the snapshot of now.
func (s *Store) Present() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked()
}

func (s *Store) currentLocked() *Snapshot {
	if s.current == nil {
		s.current = &Snapshot{rv: s.head, count: s.count, hot: s.hot.Clone(), base: s.base}
		s.recent.put(s.current, s.clock.Now())
	}
	return s.current
}

// exact finds a snapshot of the past, or undoes history on a clone of the next
// younger one. Only the clone is made under the lock.
func (s *Store) exact(rv uint64) (*Snapshot, error) {
	snap, undo, err := s.younger(rv)
	if err != nil || len(undo) == 0 {
		return snap, err
	}
	for _, events := range slices.Backward(undo) {
		for _, e := range slices.Backward(events.read()) {
			snap.undo(e)
		}
	}
	snap.rv = rv
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.recent.get(rv, s.clock.Now()); kept != nil {
		return kept, nil // somebody else was faster
	}
	s.recent.put(snap, s.clock.Now())
	return snap, nil
}

// undo takes one event back.
func (s *Snapshot) undo(e *cache.Event) {
	if e.Prev == nil {
		s.hot.ReplaceOrInsert(entry{object: e.Object, gone: true})
		s.count--
		return
	}
	s.hot.ReplaceOrInsert(entry{object: e.Prev})
	if e.Type == cache.Deleted {
		s.count++
	}
}

// younger returns the snapshot of an RV, or a clone of a younger one and the
// events that are to be undone on it.
func (s *Store) younger(rv uint64) (*Snapshot, []part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rv == s.head {
		return s.currentLocked(), nil, nil
	}
	if snap := s.recent.get(rv, s.clock.Now()); snap != nil {
		return snap, nil, nil
	}
	if rv < s.log.from || s.lost(rv) {
		return nil, nil, s.expire(rv, s.log.from)
	}
	younger := s.recent.after(rv)
	if younger == nil {
		younger = s.currentLocked()
	}
	undo := s.log.between(rv, younger.rv)
	if len(undo) == 0 { // no event has that very RV: nothing happened since
		return &Snapshot{rv: rv, count: younger.count, hot: younger.hot, base: younger.base}, nil, nil
	}
	return &Snapshot{rv: rv, count: younger.count, hot: younger.hot.Clone(), base: younger.base}, undo, nil
}

// recent keeps the last used snapshots, for the pages of a LIST.
type recent struct{ kept []keptSnapshot }

type keptSnapshot struct {
	*Snapshot
	used time.Time
}

const (
	maxRecent = 8
	keepIdle  = time.Minute
)

func (r *recent) put(s *Snapshot, now time.Time) {
	if len(r.kept) == maxRecent {
		oldest := 0
		for i, k := range r.kept {
			if k.used.Before(r.kept[oldest].used) {
				oldest = i
			}
		}
		r.kept = slices.Delete(r.kept, oldest, oldest+1)
	}
	r.kept = append(r.kept, keptSnapshot{s, now})
}

func (r *recent) get(rv uint64, now time.Time) *Snapshot {
	for i := range r.kept {
		if r.kept[i].rv == rv {
			r.kept[i].used = now
			return r.kept[i].Snapshot
		}
	}
	return nil
}

// forget drops the snapshot of an RV.
func (r *recent) forget(rv uint64) {
	r.kept = slices.DeleteFunc(r.kept, func(k keptSnapshot) bool { return k.rv == rv })
}

// after is the oldest kept snapshot that is younger than rv.
func (r *recent) after(rv uint64) *Snapshot {
	var best *Snapshot
	for _, k := range r.kept {
		if k.rv > rv && (best == nil || k.rv < best.rv) {
			best = k.Snapshot
		}
	}
	return best
}

func (r *recent) trim(now time.Time) {
	r.kept = slices.DeleteFunc(r.kept, func(k keptSnapshot) bool { return now.Sub(k.used) > keepIdle })
}
