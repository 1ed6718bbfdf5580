package store

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Snapshot is one moment of a collection. It never changes.
type Snapshot struct {
	rv   uint64
	tree *tree
}

// RV implements cache.Snapshot.
func (s *Snapshot) RV() uint64 { return s.rv }

// Len implements cache.Snapshot.
func (s *Snapshot) Len() int { return s.tree.Len() }

// Ascend implements cache.Snapshot.
func (s *Snapshot) Ascend(from cache.Key, fn func(*cache.Object) bool) {
	s.tree.AscendGreaterOrEqual(&cache.Object{Key: from}, fn)
}

// Get finds one object.
func (s *Snapshot) Get(key cache.Key) (*cache.Object, bool) {
	return s.tree.Get(&cache.Object{Key: key})
}

// Snapshot returns the moment that a version asks for.
func (s *Store) Snapshot(ctx context.Context, at cache.Version) (*Snapshot, error) {
	if err := s.Await(ctx, at); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Match != cache.Exact || at.RV == s.head {
		return s.currentLocked(), nil
	}
	return s.exactLocked(at.RV)
}

// Present is the snapshot of now.
func (s *Store) Present() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked()
}

func (s *Store) currentLocked() *Snapshot {
	if s.current == nil {
		s.current = &Snapshot{rv: s.head, tree: s.tree.Clone()}
		s.recent.put(s.current, s.clock.Now())
	}
	return s.current
}

// exactLocked finds a snapshot of the past, or undoes history on a clone of
// the next younger one.
func (s *Store) exactLocked(rv uint64) (*Snapshot, error) {
	now := s.clock.Now()
	if snap := s.recent.get(rv, now); snap != nil {
		return snap, nil
	}
	if rv < s.log.from {
		return nil, s.expire(rv, s.log.from)
	}
	base := s.recent.after(rv)
	if base == nil {
		base = s.currentLocked()
	}
	undone := base.tree.Clone()
	s.log.undo(base.rv, rv, func(e *cache.Event) {
		if e.Prev != nil {
			undone.ReplaceOrInsert(e.Prev)
		} else {
			undone.Delete(e.Object)
		}
	})
	snap := &Snapshot{rv: rv, tree: undone}
	s.recent.put(snap, now)
	return snap, nil
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
