package priority

import "sync"

// Level is how soon a key is looked at.
type Level int

const (
	// Backlog is what a resync, a restart, a member that comes back or a policy
	// brings, all of it at once.
	Backlog Level = iota
	// New is a single change that somebody waits for.
	New
)

// few keys that come at once are no backlog.
const few = 16

// Of is the level of keys that come at once.
func Of(n int) Level {
	if n > few {
		return Backlog
	}
	return New
}

// newPerBacklog is how many new keys go before one of a backlog that waits.
const newPerBacklog = 7

// choose is the lane to take from next: how many wait in each, and how many in a
// row have been taken from the new ones while a backlog waited.
func choose(fresh, backlog, row int) Level {
	if fresh > 0 && (backlog == 0 || row < newPerBacklog) {
		return New
	}
	return Backlog
}

// ticket is a place in a lane. A key that changes lanes leaves its ticket
// behind, which then is no longer good.
type ticket[K comparable] struct {
	key    K
	number uint64
}

// place is where the good ticket of a key is.
type place struct {
	level  Level
	number uint64
}

// lanes hold what waits, first in, first out on each level. It is a
// workqueue.Queue; marks and levels are asked for from elsewhere as well.
type lanes[K comparable] struct {
	mu      sync.Mutex
	queued  [2][]ticket[K]
	places  map[K]place
	count   [2]int // good tickets
	number  uint64
	row     int
	urgent  map[K]struct{} // to be queued as new when they are queued next
	serving map[K]Level
	behind  map[K]struct{} // taken from the backlog last
}

func newLanes[K comparable]() *lanes[K] {
	return &lanes[K]{places: map[K]place{}, urgent: map[K]struct{}{}, serving: map[K]Level{}, behind: map[K]struct{}{}}
}

// mark has a key queued as new: at once where it waits, else when it comes.
func (l *lanes[K]) mark(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.urgent[key] = struct{}{}
}

func (l *lanes[K]) level(key K) Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.serving[key]
}

// last is the level on which a key was taken last.
func (l *lanes[K]) last(key K) Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.behind[key]; ok {
		return Backlog
	}
	return New
}

func (l *lanes[K]) done(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.serving, key)
}

// Push implements workqueue.Queue.
func (l *lanes[K]) Push(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level := Backlog
	if _, ok := l.urgent[key]; ok {
		delete(l.urgent, key)
		level = New
	}
	l.put(key, level)
}

func (l *lanes[K]) put(key K, level Level) {
	l.number++
	l.queued[level] = append(l.queued[level], ticket[K]{key, l.number})
	l.places[key] = place{level, l.number}
	l.count[level]++
}

// Touch implements workqueue.Queue: what waits in the backlog may move up.
func (l *lanes[K]) Touch(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.urgent[key]; !ok {
		return
	}
	delete(l.urgent, key)
	if p, ok := l.places[key]; ok && p.level == Backlog {
		l.count[Backlog]--
		l.put(key, New)
	}
}

// Len implements workqueue.Queue.
func (l *lanes[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[New] + l.count[Backlog]
}

// Pop implements workqueue.Queue; it is asked only where something waits.
func (l *lanes[K]) Pop() K {
	l.mu.Lock()
	defer l.mu.Unlock()
	level := choose(l.count[New], l.count[Backlog], l.row)
	if l.row++; level == Backlog || l.count[Backlog] == 0 {
		l.row = 0
	}
	key := l.first(level)
	if l.serving[key] = level; level == Backlog {
		l.behind[key] = struct{}{}
	} else {
		delete(l.behind, key)
	}
	return key
}

// first takes the first good ticket of a lane.
func (l *lanes[K]) first(level Level) K {
	for {
		t := l.queued[level][0]
		l.queued[level][0] = ticket[K]{}
		l.queued[level] = l.queued[level][1:]
		if l.places[t.key] == (place{level, t.number}) {
			delete(l.places, t.key)
			l.count[level]--
			return t.key
		}
	}
}
