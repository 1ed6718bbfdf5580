package store

import (
	"context"
	"sync"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Cursor reads the history from a position on. It implements cache.Watcher.
// It has no buffer: one that is slower than the history is long gets
// ErrExpired. Next is for one goroutine at a time.
type Cursor struct {
	store *Store
	next  uint64 // position of the next event
	life  int    // of the store's

	mu       sync.Mutex
	progress uint64
}

// Watch returns a cursor over every event above rv. It is counted as a watcher
// until ctx ends.
func (s *Store) Watch(ctx context.Context, rv uint64) (*Cursor, error) {
	if err := s.reach(ctx, rv); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, cache.ErrClosed
	}
	if rv < s.log.from || s.lost(rv) {
		return nil, s.expire(rv, s.log.from)
	}
	s.watchers++
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers--
	})
	return &Cursor{store: s, next: s.log.position(rv), life: s.life, progress: rv}, nil
}

// Next implements cache.Watcher.
func (c *Cursor) Next(ctx context.Context) ([]*cache.Event, error) {
	for {
		ready, wake, err := c.poll()
		if err != nil {
			return nil, err
		}
		if ready.len() > 0 {
			events := ready.read()
			c.advance(events[len(events)-1].RV)
			return events, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// poll returns what is ready, or the channel that is closed when there is more.
func (c *Cursor) poll() (part, <-chan struct{}, error) {
	s := c.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c.life != s.life { // the reader goes on by RV, and never misses what it cannot see
		return part{}, nil, cache.ErrClosed
	}
	if c.next < s.log.first {
		return part{}, nil, s.expire(c.progress, s.log.from)
	}
	if ready := s.log.at(c.next, s.visible); ready.len() > 0 {
		c.next += uint64(ready.len()) //nolint:gosec // a length
		return ready, nil, nil
	}
	if s.closed {
		return part{}, nil, cache.ErrClosed
	}
	c.advance(s.visibleHead)
	return part{}, s.wake, nil
}

func (c *Cursor) advance(rv uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = max(c.progress, rv)
}

// Progress implements cache.Watcher.
func (c *Cursor) Progress() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}
