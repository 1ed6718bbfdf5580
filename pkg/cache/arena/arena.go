// Package arena keeps bytes outside the collected heap, so that what a cache
// holds at rest neither costs the collector time nor the room that it leaves
// for garbage.
//
//	Put(bytes) -> slot of a slab of its size class -> *Ref
//	the collector finds no Ref any more -> the slot is free again
//
// Nobody frees explicitly: a Ref is shared by snapshots and readers, and the
// collector knows best who is the last one.
package arena

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	slabSize = 1 << 20
	minSize  = 256
	maxSize  = slabSize / 8 // larger pieces have a mapping of their own
	// steps is how many classes a doubling has: a slot wastes at most 1/steps.
	steps = 8
	// noHugePages is MADV_NOHUGEPAGE: a slab that is half used is to be half
	// resident.
	noHugePages = 15
)

// Arena hands out slots. It is safe for concurrent use.
type Arena struct {
	mu      sync.Mutex
	classes [classes]class
	live    atomic.Int64 // bytes of slots in use
	mapped  atomic.Int64 // bytes of slabs
	retired atomic.Int64 // bytes that wait for the collector
	poison  bool
}

// classes is above the class of maxSize.
const classes = 81

// class is the slabs of one size of slot.
type class struct {
	open []*slab // with room
}

type slab struct {
	data  []byte
	class int
	used  int      // slots below were in use at least once
	free  []uint16 // slots that are free again
	live  int
	open  bool
}

// slot is where the bytes of a Ref are.
type slot struct {
	arena *Arena
	slab  *slab
	index uint16
	own   []byte // the mapping of a large piece
	size  int64
}

// Ref refers to bytes in an arena. They live as long as it does.
type Ref struct {
	data []byte
	size int64
}

// New makes an empty arena.
func New() *Arena { return &Arena{} }

// NewPoisoned makes an arena that overwrites what becomes free, for tests.
func NewPoisoned() *Arena { return &Arena{poison: true} }

// View calls fn with the bytes. They are valid during the call only, and are
// not to be written to.
func (r *Ref) View(fn func([]byte)) {
	fn(r.data)
	runtime.KeepAlive(r)
}

// Len is the number of bytes.
func (r *Ref) Len() int { return len(r.data) }

// Put copies bytes into the arena. Where the system gives no more memory they
// are kept in the heap.
func (a *Arena) Put(b []byte) *Ref {
	at, data := a.allocate(len(b))
	if data == nil {
		return &Ref{data: append([]byte(nil), b...)}
	}
	copy(data, b)
	r := &Ref{data: data[:len(b):len(b)], size: at.size}
	a.live.Add(at.size)
	runtime.AddCleanup(r, release, at)
	return r
}

// classOf is the smallest class whose slots hold n bytes, and their size.
func classOf(n int) (index, size int) {
	n = max(n, minSize)
	shift := bits.Len(uint(n-1)) - 1 // 2^shift < n <= 2^(shift+1)
	step := max(1<<shift/steps, 1)
	k := (n - 1<<shift + step - 1) / step
	return (shift-bits.Len(minSize-1)+1)*steps + k, 1<<shift + k*step
}

func (a *Arena) allocate(n int) (slot, []byte) {
	if n > maxSize {
		data, err := mapMemory(n)
		if err != nil {
			return slot{}, nil
		}
		a.mapped.Add(int64(len(data)))
		return slot{arena: a, own: data, size: int64(len(data))}, data
	}
	index, size := classOf(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &a.classes[index]
	if len(c.open) == 0 {
		data, err := mapMemory(slabSize)
		if err != nil {
			return slot{}, nil
		}
		a.mapped.Add(slabSize)
		c.open = append(c.open, &slab{data: data, class: index, open: true})
	}
	s := c.open[len(c.open)-1]
	i := s.used
	if last := len(s.free) - 1; last >= 0 {
		i = int(s.free[last])
		s.free = s.free[:last]
	} else {
		s.used++
	}
	s.live++
	if len(s.free) == 0 && (s.used+1)*size > slabSize {
		c.open, s.open = c.open[:len(c.open)-1], false
	}
	return slot{arena: a, slab: s, index: uint16(i), size: int64(size)}, s.data[i*size : i*size+n] //nolint:gosec // at most slabSize/minSize
}

// release takes a slot back when the collector has found its Ref unused.
func release(at slot) {
	a := at.arena
	a.live.Add(-at.size)
	if left := a.retired.Add(-at.size); left < 0 {
		a.retired.CompareAndSwap(left, 0)
	}
	if at.own != nil {
		a.unmap(at.own)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, c := at.slab, &a.classes[at.slab.class]
	if a.poison {
		i := int(at.index) * int(at.size)
		for j := range s.data[i : i+int(at.size)] {
			s.data[i+j] = 0xdb
		}
	}
	s.free = append(s.free, at.index)
	s.live--
	if !s.open {
		c.open, s.open = append(c.open, s), true
	}
	if s.live > 0 || len(c.open) == 1 {
		return
	}
	for i, other := range c.open {
		if other == s {
			c.open = append(c.open[:i], c.open[i+1:]...)
			break
		}
	}
	a.unmap(s.data)
}

func mapMemory(n int) ([]byte, error) {
	n = (n + 4095) &^ 4095
	data, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	_ = syscall.Madvise(data, noHugePages) // advice: it works without
	return data, nil
}

func (a *Arena) unmap(data []byte) {
	a.mapped.Add(-int64(len(data)))
	_ = syscall.Munmap(data) // fails only for what is no mapping
}

// Stats describes an arena in bytes: slots in use, and slabs mapped.
func (a *Arena) Stats() (live, mapped int64) { return a.live.Load(), a.mapped.Load() }

// minRetired is below what it is not worth to call the collector.
const minRetired = 16 << 20

// Retire says that nothing new will refer to a Ref. The collector does not see
// how large these are; where too much waits for it, it is called.
func (a *Arena) Retire(r *Ref) {
	if n := a.retired.Add(r.size); n > minRetired && n > a.live.Load()/6 && a.retired.CompareAndSwap(n, 0) {
		go runtime.GC()
	}
}
