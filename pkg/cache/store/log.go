package store

import (
	"slices"
	"sort"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// overhead is what an event costs beyond the bytes of its object, and what
// remains of that once it is packed.
const (
	overhead       = 1024
	packedOverhead = 32
)

// chunk is a run of events: as they are, or packed. The slice of events has its
// full capacity from the start and is only appended to, so that a reader may
// keep a part of it without a copy.
type chunk struct {
	events []*cache.Event // nil when packed
	bytes  int64
	packed *packedEvents
}

func (c *chunk) len() int {
	if c.packed != nil {
		return len(c.packed.marks)
	}
	return len(c.events)
}

func (c *chunk) rv(i int) uint64 {
	if c.packed != nil {
		return c.packed.marks[i].rv
	}
	return c.events[i].RV
}

func (c *chunk) time(i int) time.Time {
	if c.packed != nil {
		return time.Unix(0, c.packed.marks[i].time)
	}
	return c.events[i].Time
}

func (c *chunk) last() int { return c.len() - 1 }

const (
	chunkEvents = 64
	chunkBytes  = 512 << 10
)

// log is the history in RV order: every event above from.
//
// Events leave it a chunk at a time. Each has a position that only grows; a
// reader holds the position of the next event it wants.
type log struct {
	limits Limits
	from   uint64 // the history is complete after this RV
	first  uint64 // position of the first event of chunks[0]
	chunks []*chunk
	starts []uint64 // position of the first event of each chunk
	count  int
	bytes  int64
	// unpacked is the part of bytes that is not packed.
	unpacked int64
	fresh    uint64 // position of the oldest event that may have a memo
}

func newLog(from uint64, limits Limits) log {
	return log{limits: limits, from: from}
}

func (l *log) len() int { return l.count }

func (l *log) end() uint64 { return l.first + uint64(l.count) }

// weight is what an event keeps alive. The state before it was the state of an
// event before it, or is packed.
func weight(e *cache.Event) int64 {
	if raw, ok := e.Object.Body.(cache.Bytes); ok {
		return int64(overhead + len(raw))
	}
	return overhead
}

func (l *log) append(e *cache.Event) {
	last := len(l.chunks) - 1
	if last < 0 || l.chunks[last].packed != nil || l.chunks[last].len() == chunkEvents || l.chunks[last].bytes > min(chunkBytes, l.limits.Bytes/32) {
		l.starts = append(l.starts, l.end())
		l.chunks = append(l.chunks, &chunk{events: make([]*cache.Event, 0, chunkEvents)})
		last++
	}
	c := l.chunks[last]
	c.events = append(c.events, e)
	w := weight(e)
	c.bytes += w
	l.bytes += w
	l.unpacked += w
	l.count++
	for l.bytes > l.limits.Bytes && len(l.chunks) > 1 {
		l.dropFirst()
	}
}

// trim drops chunks whose last event is too old. The last chunk goes only when
// it is as old; the log may be empty then.
func (l *log) trim(now time.Time) {
	for len(l.chunks) > 0 {
		if c := l.chunks[0]; now.Sub(c.time(c.last())) <= l.limits.Age {
			break
		}
		l.dropFirst()
	}
	l.forgetMemos(now.Add(-memoAge))
}

func (l *log) dropFirst() {
	c := l.chunks[0]
	l.from = c.rv(c.last())
	l.first += uint64(c.len())
	l.count -= c.len()
	l.bytes -= c.bytes
	if c.packed == nil {
		l.unpacked -= c.bytes
	}
	l.chunks[0] = nil
	l.chunks, l.starts = l.chunks[1:], l.starts[1:]
	if len(l.chunks) == 0 {
		l.chunks, l.starts = nil, nil
	}
}

// memoAge is how long encodings of an event are kept: as long as watchers that
// keep up may ask for them.
const memoAge = 10 * time.Second

// forgetMemos frees the encodings of events from before a moment.
func (l *log) forgetMemos(before time.Time) {
	l.fresh = max(l.fresh, l.first)
	for l.fresh < l.end() {
		i := l.chunkOf(l.fresh)
		c := l.chunks[i]
		if c.packed != nil {
			l.fresh = l.starts[i] + uint64(c.len())
			continue
		}
		e := c.events[l.fresh-l.starts[i]]
		if !e.Time.Before(before) {
			return
		}
		e.Memo.Forget()
		l.fresh++
	}
}

// chunkOf is the index of the chunk that has a position.
func (l *log) chunkOf(pos uint64) int {
	return sort.Search(len(l.starts), func(i int) bool { return l.starts[i] > pos }) - 1
}

// position is that of the first event above rv.
func (l *log) position(rv uint64) uint64 {
	i := sort.Search(len(l.chunks), func(i int) bool { return l.chunks[i].rv(l.chunks[i].last()) > rv })
	if i == len(l.chunks) {
		return l.end()
	}
	c := l.chunks[i]
	return l.starts[i] + uint64(sort.Search(c.len(), func(j int) bool { return c.rv(j) > rv }))
}

// part is a run of events of one chunk that may have to be unpacked yet, which
// is done without a lock.
type part struct {
	events   []*cache.Event
	packed   *packedEvents
	from, to int
}

func (p part) len() int { return p.to - p.from }

func (p part) read() []*cache.Event {
	if p.packed != nil {
		p.events = p.packed.read()
	}
	return p.events[p.from:p.to:p.to]
}

// backwards calls fn for at most limit events, the newest first, until it
// returns false.
func (l *log) backwards(limit int, fn func(*cache.Event) bool) {
	for _, c := range slices.Backward(l.chunks) {
		for _, e := range slices.Backward(part{events: c.events, packed: c.packed, to: c.len()}.read()) {
			if limit--; limit < 0 || !fn(e) {
				return
			}
		}
	}
}

// at returns what a chunk has from a position on, up to another.
func (l *log) at(pos, end uint64) part {
	end = min(end, l.end())
	if pos < l.first || pos >= end {
		return part{}
	}
	i := l.chunkOf(pos)
	c, start := l.chunks[i], l.starts[i]
	to := int(min(uint64(c.len()), end-start))                                      //nolint:gosec // at most chunkEvents
	return part{events: c.events, packed: c.packed, from: int(pos - start), to: to} //nolint:gosec // at most chunkEvents
}

// between returns the events in (after, upTo].
func (l *log) between(after, upTo uint64) (all []part) {
	end := l.position(upTo)
	for pos := l.position(after); pos < end; {
		p := l.at(pos, end)
		all = append(all, p)
		pos += uint64(p.len()) //nolint:gosec // a length
	}
	return all
}
