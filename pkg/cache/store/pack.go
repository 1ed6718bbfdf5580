package store

import (
	"sync"
	"time"
	"unsafe"
	"weak"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// When something is packed: once it has been quiet for a while, and sooner
// where more than a budget is not packed yet. What changes all the time stays
// as it is.
const (
	quietObject = 10 * time.Second
	quietEvent  = 5 * time.Second
	hotBudget   = 8 << 20
	logBudget   = 8 << 20
	// entryOverhead is what an unpacked object costs beyond its bytes.
	entryOverhead = 1024
)

func (e entry) weight() int64 {
	if e.gone {
		return 128
	}
	if raw, ok := e.object.Body.(cache.Bytes); ok {
		return int64(entryOverhead + len(raw))
	}
	return entryOverhead
}

// Pressed says that more is unpacked than a writer may leave behind: it calls
// Pack before it goes on.
func (s *Store) Pressed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.hotBytes > 2*hotBudget || s.log.unpacked > 2*logBudget
}

// Pack packs what has been quiet, or is too much. It may take a while and is
// called without the writer's lock.
func (s *Store) Pack() {
	now := s.clock.Now()
	quiet := now.Add(-quietObject)
	s.pack(now, quiet)
}

// PackAll packs every object, and the history but for its last events.
func (s *Store) PackAll() {
	now := s.clock.Now().Add(time.Hour)
	s.pack(now, now)
}

func (s *Store) pack(now, quiet time.Time) {
	s.packing.Lock()
	defer s.packing.Unlock()
	s.packObjects(quiet)
	s.packEvents(now)
}

func (s *Store) packObjects(quiet time.Time) {
	changes, old := s.quiet(quiet.UnixNano())
	if len(changes) == 0 {
		return
	}
	next, replaced := old.with(s.packer, changes)
	s.mu.Lock()
	s.base = next
	for _, e := range changes {
		if there, ok := s.hot.Get(e); ok && there == e {
			s.hot.Delete(e)
			s.hotBytes -= e.weight()
		}
	}
	s.current = nil // it holds what has been replaced
	s.recent.forget(s.head)
	s.mu.Unlock()
	for _, b := range replaced {
		b.Retire()
	}
}

// quiet lists, in key order, what has not changed since a moment or is too
// much, and the base for it.
func (s *Store) quiet(before int64) ([]entry, *base) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.hotBytes > hotBudget {
		before = max(before, s.olderHalf())
	}
	var changes []entry
	s.hot.Ascend(func(e entry) bool {
		if e.since <= before {
			changes = append(changes, e)
		}
		return true
	})
	return changes, s.base
}

// olderHalf is a moment that about half of the unpacked objects are older than.
func (s *Store) olderHalf() int64 {
	var oldest, newest int64
	s.hot.Ascend(func(e entry) bool {
		if oldest == 0 || e.since < oldest {
			oldest = e.since
		}
		newest = max(newest, e.since)
		return true
	})
	if s.hotBytes > 3*hotBudget/2 {
		return newest
	}
	return oldest + (newest-oldest)/2
}

// packedEvents is a chunk of the history, packed: of each event the state and
// the state before.
type packedEvents struct {
	marks []mark
	block *pack.Block

	mu       sync.Mutex
	unpacked weak.Pointer[cache.Event] // the first of the events of those who read now
}

// mark is what is known of an event without unpacking it.
type mark struct {
	rv      uint64
	time    int64
	kind    cache.EventType
	hasPrev bool
}

func (s *Store) packEvents(now time.Time) {
	for {
		c := s.oldestUnpacked(now)
		if c == nil {
			return
		}
		marks, objects := marksOf(c.events, true)
		p := &packedEvents{marks: marks}
		p.block = s.packer.Pack(objects)
		s.mu.Lock()
		s.log.replace(c, p)
		s.mu.Unlock()
	}
}

// oldestUnpacked is the oldest chunk that is to be packed; nothing is appended
// to it any more.
func (s *Store) oldestUnpacked(now time.Time) *chunk {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, c := range s.log.chunks {
		if c.packed != nil {
			continue
		}
		last := i == len(s.log.chunks)-1
		quiet := now.Sub(c.time(c.last())) >= quietEvent
		if last || !quiet && s.log.unpacked <= logBudget {
			return nil
		}
		return c
	}
	return nil
}

// replace puts a packed form in the place of a chunk, if it is still there.
func (l *log) replace(c *chunk, p *packedEvents) {
	i := l.chunkOf(l.positionOf(c))
	if i < 0 || l.chunks[i] != c {
		return
	}
	l.bytes -= c.bytes
	l.unpacked -= c.bytes
	size := int64(p.block.Size() + packedOverhead*len(p.marks))
	l.bytes += size
	l.chunks[i] = &chunk{packed: p, bytes: size}
}

// positionOf is where a chunk of events begins.
func (l *log) positionOf(c *chunk) uint64 {
	if first := c.rv(0); first > l.from {
		return l.position(first - 1)
	}
	return l.first
}

// read unpacks the events; their bytes only when somebody asks for them.
func (p *packedEvents) read() []*cache.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.unpacked.Value(); first != nil {
		return pointers(unsafe.Slice(first, len(p.marks)))
	}
	objects := p.block.Objects()
	all := make([]cache.Event, len(p.marks))
	for i, m := range p.marks {
		e := &all[i]
		e.Type, e.RV, e.Time = m.kind, m.rv, time.Unix(0, m.time)
		if m.hasPrev {
			e.Prev, objects = objects[0], objects[1:]
		}
		e.Object, objects = objects[0], objects[1:]
	}
	p.unpacked = weak.Make(&all[0])
	return pointers(all)
}

func pointers(all []cache.Event) []*cache.Event {
	events := make([]*cache.Event, len(all))
	for i := range all {
		events[i] = &all[i]
	}
	return events
}
