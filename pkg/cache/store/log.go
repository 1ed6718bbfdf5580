package store

import (
	"sort"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// overhead is what an event costs beyond the bytes of its object.
const overhead = 512

// chunk is a run of events. Its slice has its full capacity from the start and
// is only appended to, so that a reader may keep a part of it without a copy.
type chunk struct {
	events []*cache.Event
	bytes  int64
}

const chunkEvents = 256

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
	fresh  uint64 // position of the oldest event that may have a memo
}

func newLog(from uint64, limits Limits) log {
	return log{limits: limits, from: from}
}

func (l *log) len() int { return l.count }

func (l *log) end() uint64 { return l.first + uint64(l.count) }

// weight is what an event keeps alive that the tree does not.
func weight(e *cache.Event) int64 {
	w := int64(overhead)
	if e.Prev != nil {
		w += int64(e.Prev.Body.Len())
	}
	if e.Type == cache.Deleted {
		w += int64(e.Object.Body.Len())
	}
	return w
}

func (l *log) append(e *cache.Event) {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last].events) == chunkEvents || l.chunks[last].bytes > l.limits.Bytes/32 {
		l.starts = append(l.starts, l.end())
		l.chunks = append(l.chunks, &chunk{events: make([]*cache.Event, 0, chunkEvents)})
		last++
	}
	c := l.chunks[last]
	c.events = append(c.events, e)
	w := weight(e)
	c.bytes += w
	l.bytes += w
	l.count++
	for l.bytes > l.limits.Bytes && len(l.chunks) > 1 {
		l.dropFirst()
	}
}

// trim drops chunks whose last event is too old. The last chunk goes only when
// it is as old; the log may be empty then.
func (l *log) trim(now time.Time) {
	for len(l.chunks) > 0 {
		events := l.chunks[0].events
		if now.Sub(events[len(events)-1].Time) <= l.limits.Age {
			break
		}
		l.dropFirst()
	}
	l.forgetMemos(now.Add(-memoAge))
}

func (l *log) dropFirst() {
	c := l.chunks[0]
	l.from = c.events[len(c.events)-1].RV
	l.first += uint64(len(c.events))
	l.count -= len(c.events)
	l.bytes -= c.bytes
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
		events := l.read(l.fresh)
		for _, e := range events {
			if !e.Time.Before(before) {
				return
			}
			e.Memo.Forget()
			l.fresh++
		}
	}
}

// position is that of the first event above rv.
func (l *log) position(rv uint64) uint64 {
	i := sort.Search(len(l.chunks), func(i int) bool {
		events := l.chunks[i].events
		return events[len(events)-1].RV > rv
	})
	if i == len(l.chunks) {
		return l.end()
	}
	events := l.chunks[i].events
	return l.starts[i] + uint64(sort.Search(len(events), func(j int) bool { return events[j].RV > rv }))
}

// read returns the events of one chunk from a position on; the slice is the
// log's own and must not be written to.
func (l *log) read(pos uint64) []*cache.Event {
	if pos < l.first || pos >= l.end() {
		return nil
	}
	i := sort.Search(len(l.starts), func(i int) bool { return l.starts[i] > pos }) - 1
	events := l.chunks[i].events
	return events[pos-l.starts[i] : len(events) : len(events)]
}

// backwards calls fn for at most limit events, the newest first, until it
// returns false.
func (l *log) backwards(limit int, fn func(*cache.Event) bool) {
	for i := len(l.chunks) - 1; i >= 0; i-- {
		events := l.chunks[i].events
		for j := len(events) - 1; j >= 0; j-- {
			if limit--; limit < 0 || !fn(events[j]) {
				return
			}
		}
	}
}

// between returns the events in (after, upTo] as slices of the log's own.
func (l *log) between(after, upTo uint64) (all [][]*cache.Event) {
	end := l.position(upTo)
	for pos := l.position(after); pos < end; {
		events := l.read(pos)
		events = events[:min(uint64(len(events)), end-pos)]
		all = append(all, events)
		pos += uint64(len(events))
	}
	return all
}
