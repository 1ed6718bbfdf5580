package store

import (
	"slices"
	"sort"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// base is the packed part of a collection: blocks in key order, none empty. It
// is immutable.
type base struct{ blocks []*pack.Block }

// Bounds of a block. Larger blocks pack better, smaller ones are read and
// replaced faster.
const (
	blockObjects = 16
	blockBytes   = 256 << 10
)

// find is the index of the block that has a key, if any has it; -1 where the
// key is before all blocks.
func (b *base) find(key cache.Key) int {
	return sort.Search(len(b.blocks), func(i int) bool { return b.blocks[i].CompareFirst(key) > 0 }) - 1
}

func (b *base) get(key cache.Key) (*cache.Object, bool) {
	i := b.find(key)
	if i < 0 {
		return nil, false
	}
	return b.blocks[i].Get(key)
}

// entry is a change that is not packed yet: the object under a key, or that
// there is none.
type entry struct {
	object *cache.Object
	gone   bool
	since  int64 // Unix nanoseconds
}

func lessEntry(a, b entry) bool { return a.object.Key.Compare(b.object.Key) < 0 }

// with returns a base with changes packed into it. changes are in key order.
// The blocks that have been replaced are returned too.
func (b *base) with(p *pack.Packer, changes []entry) (next *base, replaced []*pack.Block) {
	next = &base{blocks: make([]*pack.Block, 0, len(b.blocks)+len(changes)/blockObjects+1)}
	at := 0
	for len(changes) > 0 {
		first := max(b.find(changes[0].object.Key), 0)
		next.blocks = append(next.blocks, b.blocks[at:first]...)
		at = first
		// The run of neighbouring blocks that changes fall into, packed anew
		// together, so that halves find each other.
		var run []*cache.Object
		for {
			n := len(changes)
			var old []*cache.Object
			if at < len(b.blocks) {
				old = b.blocks[at].Objects()
				replaced = append(replaced, b.blocks[at])
				at++
			}
			if at < len(b.blocks) {
				n = sort.Search(len(changes), func(i int) bool { return b.blocks[at].CompareFirst(changes[i].object.Key) <= 0 })
			}
			run = merge(run, old, changes[:n])
			changes = changes[n:]
			if len(run) >= 4*blockObjects {
				cut := len(run) / blockObjects * blockObjects
				next.blocks = appendBlocks(next.blocks, p, run[:cut])
				run = slices.Clone(run[cut:])
			}
			more := len(changes) > 0 && at < len(b.blocks) && (at+1 == len(b.blocks) || b.blocks[at+1].CompareFirst(changes[0].object.Key) > 0)
			if !more && (len(run) == 0 || len(run) >= blockObjects/2 || at == len(b.blocks)) {
				break
			}
		}
		next.blocks = appendBlocks(next.blocks, p, run)
	}
	next.blocks = append(next.blocks, b.blocks[at:]...)
	return next, replaced
}

// merge appends old objects and changes in key order.
func merge(dst, old []*cache.Object, changes []entry) []*cache.Object {
	for _, c := range changes {
		key := c.object.Key
		for len(old) > 0 && old[0].Key.Compare(key) < 0 {
			dst, old = append(dst, old[0]), old[1:]
		}
		if len(old) > 0 && old[0].Key == key {
			old = old[1:]
		}
		if !c.gone {
			dst = append(dst, c.object)
		}
	}
	return append(dst, old...)
}

// appendBlocks packs objects into blocks of about the same length.
func appendBlocks(dst []*pack.Block, p *pack.Packer, objects []*cache.Object) []*pack.Block {
	for len(objects) > 0 {
		blocks := (len(objects) + blockObjects*5/4 - 1) / (blockObjects * 5 / 4)
		n, bytes := (len(objects)+blocks-1)/blocks, 0
		for i, o := range objects[:n] {
			if bytes += o.Body.Len(); bytes > blockBytes && i > 0 {
				n = i
				break
			}
		}
		dst = append(dst, p.Pack(objects[:n]))
		objects = objects[n:]
	}
	return dst
}
