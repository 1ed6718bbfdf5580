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
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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

// Compress appends bytes in the form that bodies of blocks have.
func Compress(dst, b []byte) []byte { return encoder().EncodeAll(b, dst) }

// Decompress appends what Compress was given.
func Decompress(dst, b []byte) ([]byte, error) {
	out, err := decoder().DecodeAll(b, dst)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return out, nil
}

// Packer makes blocks of one kind of object.
type Packer struct {
	// Fields names the selectable fields of the kind, in the order in which
	// its objects hold them.
	Fields []string
	// Encoding is the form of the objects' bytes.
	Encoding cache.Encoding
	Arena    *arena.Arena
}

// Block is a few objects, packed. It is immutable. It implements cache.Pack.
type Block struct {
	packer *Packer
	ref    *arena.Ref
	head   int // bytes of the head; the body follows it
	raw    int // bytes of all objects, unpacked
	count  int
	sizes  sizes
	id     *cache.PackID
}

// Pack makes a block of objects in the order given.
func (p *Packer) Pack(objects []*cache.Object) *Block {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	raw := w.build(objects)
	b := &Block{packer: p, ref: p.Arena.Put(w.packed), head: len(w.out), raw: raw, count: len(objects), id: new(cache.PackID)}
	b.sizes.measure(objects)
	if metadata, err := p.framedMetadata(objects); err == nil { // else it is told to who asks
		b.sizes.metadata.Store(metadata)
	}
	return b
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
func (b *Block) Retire() {
	b.id.Retire()
	b.packer.Arena.Retire(b.ref)
}

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

// memories are for heads that are read and forgotten.
var memories = sync.Pool{New: func() any { return &memory{} }}

func (m *memory) release() {
	clear(m.records)
	memories.Put(m)
}

// scan reads the head and calls fn with each object and its place, until it
// returns false. What fn keeps of an object it has to copy.
func (b *Block) scan(fn func(i int, o *cache.Object) bool) {
	m := memories.Get().(*memory)
	defer m.release()
	b.ref.View(func(data []byte) {
		objects, err := b.packer.readTo(m, alias(data[:b.head]), b.count, &set{block: b})
		if err != nil {
			panic(fmt.Sprintf("a block of this process cannot be read: %v", err))
		}
		for i, o := range objects {
			if !fn(i, o) {
				return
			}
		}
	})
}

// Matching implements cache.Pack.
func (b *Block) Matching(match func(*cache.Object) bool) (matching []*cache.Object) {
	var found []int
	b.scan(func(i int, o *cache.Object) bool {
		if match(o) {
			found = append(found, i)
		}
		return true
	})
	if len(found) == 0 {
		return nil
	}
	// The bytes of those that do not match are not kept with theirs.
	all, few := b.Objects(), &set{block: b}
	for _, i := range found {
		o := all[i]
		own := o.Body.(*body)
		few.parts = append(few.parts, part{own.from, own.to})
		o.Body = &body{set: few, from: few.size, to: few.size + own.Len()}
		few.size += own.Len()
		matching = append(matching, o)
	}
	return matching
}

// Mentions implements cache.Pack. A head has every text once, after its length,
// but for what looks like a UID.
func (b *Block) Mentions(all [][]string) (yes bool) {
	b.ref.View(func(data []byte) {
		head := data[:b.head]
		yes = !slices.ContainsFunc(all, func(texts []string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return mayHave(head, text) })
		})
	})
	return yes
}

func mayHave(head []byte, text string) bool {
	if _, uid := packUID(text); uid || text == "" {
		return true
	}
	var stack [128]byte
	return bytes.Contains(head, append(binary.AppendUvarint(stack[:0], uint64(len(text))), text...))
}

// Get reads one object, and keeps nothing of its neighbours with it: it may be
// kept for long.
func (b *Block) Get(key cache.Key) (found *cache.Object, ok bool) {
	b.scan(func(_ int, o *cache.Object) bool {
		c := o.Key.Compare(key)
		if c == 0 {
			found = b.alone(o)
		}
		return c < 0
	})
	return found, found != nil
}

// alone is an object with a head of its own.
func (b *Block) alone(o *cache.Object) *cache.Object {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	w.reset()
	w.object(o)
	own := o.Body.(*body)
	objects, err := b.packer.read(string(w.out), 1, &set{block: b, size: own.Len(), parts: []part{{own.from, own.to}}})
	if err != nil {
		panic(fmt.Sprintf("an object of this process cannot be read: %v", err))
	}
	return objects[0]
}

// Append writes the block in a form that Load reads, without unpacking it.
func (b *Block) Append(dst []byte) []byte {
	dst = appendSizes(dst, b.count, b.raw, b.head, b.ref.Len())
	b.ref.View(func(data []byte) { dst = append(dst, data...) })
	return dst
}

// Load reads what Append has written, and gives the rest.
func (p *Packer) Load(in []byte) (*Block, []byte, error) {
	return p.LoadEach(in, func(*cache.Object) error { return nil })
}

// LoadEach is Load, and shows each object, without its bytes: what of it is kept
// has to be copied.
func (p *Packer) LoadEach(in []byte, each func(*cache.Object) error) (*Block, []byte, error) {
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
	m := memories.Get().(*memory)
	defer m.release()
	objects, err := p.readTo(m, alias(in[:head]), count, &set{size: raw})
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		if err := each(o); err != nil {
			return nil, nil, err
		}
	}
	b := &Block{packer: p, ref: p.Arena.Put(in[:size]), head: head, raw: raw, count: count, id: new(cache.PackID)}
	b.sizes.measure(objects)
	return b, in[size:], nil
}

// unpack appends the objects' bytes.
func (b *Block) unpack(dst []byte) (out []byte, err error) {
	before := len(dst)
	b.ref.View(func(data []byte) { out, err = Decompress(dst, data[b.head:]) })
	if err == nil && len(out)-before != b.raw {
		err = fmt.Errorf("%w: %d bytes instead of %d", ErrMalformed, len(out)-before, b.raw)
	}
	return out, err
}

// bodies are for objects that are unpacked, copied and forgotten.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// unpacked calls fn with the objects' bytes, which are valid during the call.
func (b *Block) unpacked(fn func([]byte) error) error {
	buffer := bodies.Get().(*[]byte)
	all, err := b.unpack((*buffer)[:0])
	if err != nil {
		return err
	}
	err = fn(all)
	if *buffer = all; cap(all) <= maxScratch {
		bodies.Put(buffer)
	}
	return err
}

// set is the bytes of the objects of one block, or of some of them, unpacked on
// first use.
type set struct {
	block *Block
	size  int
	parts []part // those that are kept, nil for all
	once  sync.Once
	data  []byte
}

type part struct{ from, to int }

// total is the number of bytes of the objects.
func (s *set) total() int {
	if s.block != nil && s.parts == nil {
		return s.block.raw
	}
	return s.size
}

func (s *set) load() []byte {
	s.once.Do(func() {
		var err error
		if s.parts == nil {
			s.data, err = s.block.unpack(make([]byte, 0, s.block.raw))
		} else {
			err = s.block.unpacked(func(all []byte) error {
				s.data = make([]byte, 0, s.size)
				for _, p := range s.parts {
					s.data = append(s.data, all[p.from:p.to]...)
				}
				return nil
			})
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
