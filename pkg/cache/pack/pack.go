// Package pack keeps objects compressed: neighbours together, since they are
// alike, outside the collected heap.
//
//	Packer.Pack(objects) -> head (keys, UIDs, RVs, labels, fields, references)
//	                        and body (the objects' bytes, zstd) -> *Block
//	Block.Objects        -> objects whose bytes are unpacked when asked for
//
// A head is small and is read without decompressing anything, which is all that
// selectors and look-ups need.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
)

// ErrMalformed is wrapped by what is wrong with the bytes of a block.
var ErrMalformed = errors.New("malformed block")

// maxBody bounds what a body from a disk may claim to unpack to.
const maxBody = 1 << 30

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(512<<10), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd: %v", err)) // constant options
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxBody))
	if err != nil {
		panic(fmt.Sprintf("zstd: %v", err)) // constant options
	}
	return d
})

// Packer makes blocks of one kind of object.
type Packer struct {
	// Fields names the selectable fields of the kind, in the order in which
	// its objects hold them.
	Fields []string
	Arena  *arena.Arena
}

// Block is a few objects, packed. It is immutable.
type Block struct {
	packer *Packer
	ref    *arena.Ref
	head   int // bytes of the head; the body follows it
	raw    int // bytes of all objects, unpacked
	count  int
}

// Pack makes a block of objects in the order given.
func (p *Packer) Pack(objects []*cache.Object) *Block {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	raw := w.build(objects)
	return &Block{packer: p, ref: p.Arena.Put(w.packed), head: len(w.out), raw: raw, count: len(objects)}
}

// Append packs objects in the form that Load reads.
func (p *Packer) Append(dst []byte, objects []*cache.Object) []byte {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	raw := w.build(objects)
	dst = appendSizes(dst, len(objects), raw, len(w.out), len(w.packed))
	return append(dst, w.packed...)
}

// build leaves head and body of a block in w.packed.
func (w *writer) build(objects []*cache.Object) (raw int) {
	w.reset()
	body := w.body[:0]
	for _, o := range objects {
		w.object(o)
		b := o.Raw()
		raw += len(b)
		body = append(body, b...)
	}
	w.packed = append(w.packed[:0], w.out...)
	w.packed = encoder().EncodeAll(body, w.packed)
	if cap(body) <= maxScratch {
		w.body = body[:0]
	}
	return raw
}

func appendSizes(dst []byte, count, raw, head, size int) []byte {
	for _, n := range []int{count, raw, head, size} {
		dst = binary.AppendUvarint(dst, uint64(n)) //nolint:gosec // a length
	}
	return dst
}

// Len is the number of objects.
func (b *Block) Len() int { return b.count }

// Raw is the number of bytes of all objects, unpacked.
func (b *Block) Raw() int { return b.raw }

// Size is the number of bytes that the block takes.
func (b *Block) Size() int { return b.ref.Len() }

// Retire says that the block has been replaced.
func (b *Block) Retire() { b.packer.Arena.Retire(b.ref) }

// CompareFirst compares the key of the first object with another.
func (b *Block) CompareFirst(key cache.Key) (c int) {
	b.ref.View(func(data []byte) {
		r := reader{in: alias(data[:b.head])}
		c = cache.Key{Namespace: r.text(), Name: r.text()}.Compare(key)
	})
	return c
}

// Objects reads the head and gives all objects.
func (b *Block) Objects() []*cache.Object {
	var head string
	b.ref.View(func(data []byte) { head = string(data[:b.head]) })
	objects, err := b.packer.read(head, b.count, &set{block: b})
	if err != nil {
		panic(fmt.Sprintf("a block of this process cannot be read: %v", err))
	}
	return objects
}

// Append writes the block in a form that Load reads, without unpacking it.
func (b *Block) Append(dst []byte) []byte {
	dst = appendSizes(dst, b.count, b.raw, b.head, b.ref.Len())
	b.ref.View(func(data []byte) { dst = append(dst, data...) })
	return dst
}

// Load reads what Append has written, and gives the rest.
func (p *Packer) Load(in []byte) (*Block, []byte, error) {
	var n [4]int
	for i := range n {
		v, used := binary.Uvarint(in)
		if used <= 0 || v > maxBody {
			return nil, nil, fmt.Errorf("%w: no size", ErrMalformed)
		}
		n[i], in = int(v), in[used:]
	}
	count, raw, head, size := n[0], n[1], n[2], n[3]
	if size > len(in) || head > size || count > head {
		return nil, nil, fmt.Errorf("%w: %d objects, head of %d and %d bytes in %d", ErrMalformed, count, head, size, len(in))
	}
	if _, err := p.read(string(in[:head]), count, &set{size: raw}); err != nil {
		return nil, nil, err
	}
	return &Block{packer: p, ref: p.Arena.Put(in[:size]), head: head, raw: raw, count: count}, in[size:], nil
}

// set is the bytes of the objects of one block, unpacked on first use.
type set struct {
	block *Block
	size  int
	once  sync.Once
	data  []byte
}

func (s *set) load() []byte {
	s.once.Do(func() {
		b := s.block
		var err error
		b.ref.View(func(data []byte) {
			s.data, err = decoder().DecodeAll(data[b.head:], make([]byte, 0, b.raw))
		})
		if err == nil && len(s.data) != b.raw {
			err = fmt.Errorf("%w: %d bytes instead of %d", ErrMalformed, len(s.data), b.raw)
		}
		if err != nil {
			panic(fmt.Sprintf("a block of this process cannot be unpacked: %v", err))
		}
		s.block = nil
	})
	return s.data
}

// body is a cache.Body within a set.
type body struct {
	set      *set
	from, to int
}

// Bytes implements cache.Body.
func (b *body) Bytes() []byte { return b.set.load()[b.from:b.to:b.to] }

// Len implements cache.Body.
func (b *body) Len() int { return b.to - b.from }
