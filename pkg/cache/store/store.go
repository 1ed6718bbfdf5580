// Package store keeps the objects of one collection in key order, and the
// history of what changed.
//
//	Commit(event) -> hot tree and log, as they are
//	Pack          -> what has been quiet: from the tree to the base, in blocks;
//	                 from the log to packed chunks
//	Snapshot      <- a clone of the tree over the base, the log undone where it
//	                 is older
//	Cursor        <- the log, read without a copy per watcher
//
// There is one writer at a time; readers hold no lock while they iterate.
// Lock order: the writer's own lock, then Store.mu.
package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// degree of the tree; copying a node on write costs 8 bytes an object in it.
const degree = 32

// Limits bound the history.
type Limits struct {
	Bytes int64
	Age   time.Duration
}

// DefaultLimits suit a collection of Pods: 5 minutes of 500 changes a second.
var DefaultLimits = Limits{Bytes: 64 << 20, Age: 5 * time.Minute}

// WaitAhead is how long a reader waits for an RV that is not yet in the log.
const WaitAhead = 3 * time.Second

type hotTree = btree.BTree[entry]

// Store is the state of one collection.
type Store struct {
	clock  clock.WithTicker
	packer *pack.Packer

	packing sync.Mutex // held by Pack; before mu

	mu       sync.RWMutex
	hot      *hotTree // changes that are not packed yet
	hotBytes int64
	base     *base
	count    int
	head     uint64 // RV of the last event
	log      log
	counts   map[cache.ClusterName]int
	bytes    int64
	current  *Snapshot // of head; nil when it must be cloned
	recent   recent
	// What watchers may see: up to a position of the log, and an RV.
	visible     uint64
	visibleHead uint64
	wake        chan struct{} // closed when these have moved
	closed      bool
	gaps        []Gap
	life        int // grows when everything is replaced
	watchers    int
	expired     atomic.Int64
}

// New makes an empty store whose history begins at the given RV.
func New(head uint64, limits Limits, c clock.WithTicker, p *pack.Packer) *Store {
	return &Store{
		clock:  c,
		packer: p,
		hot:    btree.New(degree, lessEntry),
		base:   &base{},
		head:   head,

		visibleHead: head,

		log:    newLog(head, limits),
		counts: map[cache.ClusterName]int{},
		wake:   make(chan struct{}),
	}
}

// Commit applies one event. Its RV must be above the head. Watchers see it
// after Publish.
func (s *Store) Commit(e *cache.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.RV <= s.head {
		panic(fmt.Sprintf("store: event %d is not above %d", e.RV, s.head))
	}
	if e.Prev != nil {
		s.counts[e.Prev.Cluster]--
		s.bytes -= int64(e.Prev.Body.Len())
	}
	now := entry{object: e.Object, since: e.Time.UnixNano()}
	if e.Type == cache.Deleted {
		now.gone, now.object = true, &cache.Object{Key: e.Object.Key}
	}
	if before, ok := s.hot.ReplaceOrInsert(now); ok {
		s.hotBytes -= before.weight()
	}
	s.hotBytes += now.weight()
	if e.Prev != nil {
		s.count--
	}
	if !now.gone {
		s.count++
		s.counts[e.Object.Cluster]++
		s.bytes += int64(e.Object.Body.Len())
	}
	s.head = e.RV
	s.current = nil
	s.log.append(e)
}

// Publish shows watchers what was committed, and wakes those who wait.
func (s *Store) Publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

func (s *Store) wakeLocked() {
	s.visible, s.visibleHead = s.log.end(), s.head
	close(s.wake)
	s.wake = make(chan struct{})
}

// Trim drops history that is older than the limit.
func (s *Store) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.log.trim(now)
	s.recent.trim(now)
}

// Close ends every reader that waits, with ErrClosed.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.wakeLocked()
	}
}

// At finds the object under a key at the present moment.
func (s *Store) At(key cache.Key) (*cache.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.atLocked(key)
}

func (s *Store) atLocked(key cache.Key) (*cache.Object, bool) {
	if e, ok := s.hot.Get(entry{object: &cache.Object{Key: key}}); ok {
		if e.gone {
			return nil, false
		}
		return e.object, true
	}
	return s.base.get(key)
}

// Packer packs what the store holds.
func (s *Store) Packer() *pack.Packer { return s.packer }

// Head is the RV of the last event.
func (s *Store) Head() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head
}

// Stats counts what the store holds.
func (s *Store) Stats() cache.Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects := make(map[cache.ClusterName]int, len(s.counts))
	for c, n := range s.counts {
		if n > 0 {
			objects[c] = n
		}
	}
	return cache.Stats{Objects: objects, Bytes: s.bytes, Head: s.head, Log: s.log.len()}
}

// History describes the log and its readers.
type History struct {
	From     uint64 // the history is complete after this RV
	Bytes    int64
	Watchers int
	Expired  int64 // readers who came too late
}

// History describes the log.
func (s *Store) History() History {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return History{From: s.log.from, Bytes: s.log.bytes, Watchers: s.watchers, Expired: s.expired.Load()}
}

func (s *Store) expire(rv, from uint64) error {
	s.expired.Add(1)
	return fmt.Errorf("%w: %d, the history begins at %d", cache.ErrExpired, rv, from)
}

// Get finds an object at a moment.
func (s *Store) Get(ctx context.Context, key cache.Key, at cache.Version) (*cache.Object, error) {
	if at.Match == cache.Exact {
		snap, err := s.Snapshot(ctx, at)
		if err != nil {
			return nil, err
		}
		if o, ok := snap.Get(key); ok {
			return o, nil
		}
		return nil, fmt.Errorf("%w: %s", cache.ErrNotFound, key)
	}
	if err := s.Await(ctx, at); err != nil {
		return nil, err
	}
	if o, ok := s.At(key); ok {
		return o, nil
	}
	return nil, fmt.Errorf("%w: %s", cache.ErrNotFound, key)
}

// Await waits until the head has reached the RV of a version, up to WaitAhead.
func (s *Store) Await(ctx context.Context, at cache.Version) error {
	if at.Match == cache.Latest || at.Match == cache.Any {
		return nil
	}
	return s.reach(ctx, at.RV)
}

func (s *Store) reach(ctx context.Context, rv uint64) error {
	head, wake, closed := s.state()
	if rv <= head {
		return nil
	}
	timeout := s.clock.NewTimer(WaitAhead)
	defer timeout.Stop()
	for rv > head {
		if closed {
			return cache.ErrClosed
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C():
			return fmt.Errorf("%w: %d, the log is at %d", cache.ErrTooNew, rv, head)
		}
		head, wake, closed = s.state()
	}
	return nil
}

func (s *Store) state() (head uint64, wake <-chan struct{}, closed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head, s.wake, s.closed
}

// Past returns the newest of the last events, at most limit of them, that
// matches; nil when none does.
func (s *Store) Past(limit int, match func(*cache.Event) bool) (found *cache.Event) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.log.backwards(limit, func(e *cache.Event) bool {
		if match(e) {
			found = e
		}
		return found == nil
	})
	return found
}
