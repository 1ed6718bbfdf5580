package store

import (
	"sort"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// walker visits the objects of a moment in key order: those of the base, but
// for what has changed since it was packed. A block that no change falls into
// is visited without being read.
type walker struct {
	blocks []*pack.Block
	rest   []*cache.Object // of the block before blocks[0], as far as it is not visited yet
	visit  func(cache.Run) bool
}

// AscendRuns implements cache.Runs.
func (s *Snapshot) AscendRuns(from cache.Key, visit func(cache.Run) bool) {
	w := walker{blocks: s.base.blocks, visit: visit}
	if i := s.base.find(from); i >= 0 {
		w.blocks = s.base.blocks[i:]
		if w.blocks[0].CompareFirst(from) < 0 {
			w.read()
			n := sort.Search(len(w.rest), func(i int) bool { return w.rest[i].Key.Compare(from) >= 0 })
			w.rest = w.rest[n:]
		}
	}
	stopped := false
	s.hot.AscendGreaterOrEqual(entry{object: &cache.Object{Key: from}}, func(e entry) bool {
		stopped = !w.until(e)
		return !stopped
	})
	if stopped || !w.flush(len(w.rest)) {
		return
	}
	for _, b := range w.blocks {
		if !visit(cache.Run{Pack: b}) {
			return
		}
	}
}

// read begins the next block, when rest is empty.
func (w *walker) read() {
	w.rest, w.blocks = w.blocks[0].Objects(), w.blocks[1:]
}

// flush visits the first n objects of rest.
func (w *walker) flush(n int) bool {
	run := w.rest[:n]
	w.rest = w.rest[n:]
	return n == 0 || w.visit(cache.Run{Objects: run})
}

// until visits what comes before a change, then the change.
func (w *walker) until(e entry) bool {
	key := e.object.Key
	for {
		n := sort.Search(len(w.rest), func(i int) bool { return w.rest[i].Key.Compare(key) >= 0 })
		if !w.flush(n) {
			return false
		}
		if len(w.rest) > 0 || len(w.blocks) == 0 || w.blocks[0].CompareFirst(key) > 0 {
			break
		}
		if len(w.blocks) > 1 && w.blocks[1].CompareFirst(key) <= 0 { // the change is behind this block
			if !w.visit(cache.Run{Pack: w.blocks[0]}) {
				return false
			}
			w.blocks = w.blocks[1:]
			continue
		}
		w.read()
	}
	if len(w.rest) > 0 && w.rest[0].Key == key {
		w.rest = w.rest[1:]
	}
	return e.gone || w.visit(cache.Run{Objects: []*cache.Object{e.object}})
}
