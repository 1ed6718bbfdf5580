package store

import (
	"sort"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// walker visits the objects of a moment in key order: those of the base, but
// for what has changed since it was packed.
type walker struct {
	blocks []*pack.Block
	rest   []*cache.Object // of the block before blocks[0]
	block  *pack.Block     // the block that rest is the whole of, or nil
	visit  func(block *pack.Block, objects []*cache.Object) bool
}

// walk calls visit with runs of objects; block is not nil where a run is all
// that one block has. It stops when visit returns false.
func (s *Snapshot) walk(from cache.Key, visit func(block *pack.Block, objects []*cache.Object) bool) {
	w := walker{visit: visit}
	i := max(s.base.find(from), 0)
	w.blocks = s.base.blocks[i:]
	if len(w.blocks) > 0 {
		all := w.blocks[0].Objects()
		n := sort.Search(len(all), func(i int) bool { return all[i].Key.Compare(from) >= 0 })
		w.rest = all[n:]
		if n == 0 {
			w.block = w.blocks[0]
		}
		w.blocks = w.blocks[1:]
	}
	stopped := false
	s.hot.AscendGreaterOrEqual(entry{object: &cache.Object{Key: from}}, func(e entry) bool {
		stopped = !w.until(e)
		return !stopped
	})
	for !stopped && (len(w.rest) > 0 || len(w.blocks) > 0) {
		stopped = !w.flush(len(w.rest))
		w.next()
	}
}

// next reads the next block once rest is empty.
func (w *walker) next() {
	if len(w.rest) == 0 && len(w.blocks) > 0 {
		w.block = w.blocks[0]
		w.rest, w.blocks = w.block.Objects(), w.blocks[1:]
	}
}

// flush visits the first n objects of rest.
func (w *walker) flush(n int) bool {
	run, block := w.rest[:n], w.block
	if n < len(w.rest) {
		block = nil
	}
	w.rest = w.rest[n:]
	if n > 0 {
		w.block = nil // what remains is not the whole of it
	}
	return n == 0 || w.visit(block, run)
}

// until visits what comes before a change, then the change.
func (w *walker) until(e entry) bool {
	key := e.object.Key
	for {
		n := sort.Search(len(w.rest), func(i int) bool { return w.rest[i].Key.Compare(key) >= 0 })
		whole := n == len(w.rest)
		if !w.flush(n) {
			return false
		}
		if !whole {
			break
		}
		if len(w.blocks) == 0 || w.blocks[0].CompareFirst(key) > 0 {
			break
		}
		w.next()
	}
	if len(w.rest) > 0 && w.rest[0].Key == key {
		w.rest, w.block = w.rest[1:], nil
	}
	return e.gone || w.visit(nil, []*cache.Object{e.object})
}
