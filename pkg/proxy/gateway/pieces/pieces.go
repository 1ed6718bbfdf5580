// Package pieces keeps encoded parts of lists, so that what does not change is
// encoded once for all its readers.
//
//	pack of objects + form -> Cache.Get -> *Piece, made by the caller at first
//	Piece, other text      -> Gzip      -> one gzip member
//	Piece                  -> Append    -> plain text
//
// The pieces are outside the collected heap and within a budget of bytes. One
// that finds no room is made and not kept: a LIST that is longer than the budget
// does not push out what serves others. What nobody has used for a while goes.
package pieces

import (
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// Packing is how a piece is kept.
type Packing uint8

const (
	// ForText pieces are compressed in the way that is read fastest.
	ForText Packing = iota
	// ForGzip pieces are a run of deflate blocks that ends at a byte.
	ForGzip
)

// Piece is the encoded form of a pack. It is immutable.
type Piece struct {
	packing Packing
	ref     *arena.Ref
	raw     int
	// Of the text: its checksum, and what moves a checksum past it.
	crc, shift uint32
}

// Raw is the number of bytes of the text.
func (p *Piece) Raw() int { return p.raw }

// Append appends the text of a piece that is packed for it.
func (p *Piece) Append(dst []byte) (out []byte, err error) {
	p.ref.View(func(b []byte) { out, err = pack.Decompress(dst, b) })
	if err == nil && len(out)-len(dst) != p.raw {
		err = fmt.Errorf("%w: %d bytes of text instead of %d", pack.ErrMalformed, len(out)-len(dst), p.raw)
	}
	return out, err
}

const (
	// idle is how long a piece is kept that nobody uses.
	idle = 2 * time.Minute
	// overhead is what a piece costs beyond its bytes.
	overhead = 256
)

type key struct {
	pack    *cache.PackID
	form    string
	packing Packing
}

type entry struct {
	piece *Piece
	used  time.Time
}

// Cache keeps pieces. It is safe for concurrent use.
type Cache struct {
	budget int64
	arena  *arena.Arena

	mu     sync.Mutex
	kept   map[key]*entry
	bytes  int64
	swept  time.Time
	timer  *time.Timer // runs while anything is kept
	counts Counts
}

// Counts says what a cache has done.
type Counts struct {
	Hits, Misses int64
	Pieces       int
	Bytes        int64
}

// New makes an empty cache of at most budget bytes.
func New(budget int64) *Cache {
	return &Cache{budget: budget, arena: arena.New(), kept: map[key]*entry{}}
}

// Counts describes the cache.
func (c *Cache) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	counts.Pieces, counts.Bytes = len(c.kept), c.bytes
	return counts
}

// Get gives the piece of a pack in a form. Where it is not kept, text appends
// what it is made of.
func (c *Cache) Get(p cache.Pack, form string, packing Packing, text func(dst []byte) ([]byte, error)) (*Piece, error) {
	k := key{p.ID(), form, packing}
	now := time.Now()
	if piece := c.find(k, now); piece != nil {
		return piece, nil
	}
	s := scratches.Get().(*scratch)
	defer s.release()
	raw, err := text(s.text[:0])
	if err != nil {
		return nil, err
	}
	s.text = raw
	piece := &Piece{packing: packing, raw: len(raw)}
	switch packing {
	case ForText:
		s.packed = pack.Compress(s.packed[:0], raw)
	case ForGzip:
		if s.packed, err = s.deflate(s.packed[:0], raw); err != nil {
			return nil, err
		}
		piece.crc, piece.shift = crc32.ChecksumIEEE(raw), shiftOf(len(raw))
	}
	piece.ref = c.arena.Put(s.packed)
	c.keep(k, piece, now)
	return piece, nil
}

func (c *Cache) find(k key, now time.Time) *Piece {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.kept[k]
	if !ok {
		c.counts.Misses++
		return nil
	}
	c.counts.Hits++
	e.used = now
	return e.piece
}

func (p *Piece) size() int64 { return int64(p.ref.Len()) + overhead }

func (c *Cache) keep(k key, p *Piece, now time.Time) {
	if k.pack.Retired() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.kept[k]; ok {
		c.drop(k, old)
	}
	if c.bytes+p.size() > c.budget && now.Sub(c.swept) >= time.Second {
		c.sweep(now)
	}
	if c.bytes+p.size() > c.budget {
		return
	}
	c.kept[k] = &entry{piece: p, used: now}
	c.bytes += p.size()
	if c.timer == nil {
		c.timer = time.AfterFunc(idle/4, c.tick)
	}
}

func (c *Cache) drop(k key, e *entry) {
	delete(c.kept, k)
	c.bytes -= e.piece.size()
	c.arena.Retire(e.piece.ref)
}

// sweep drops what is of packs that have been replaced, or is not used.
func (c *Cache) sweep(now time.Time) {
	c.swept = now
	for k, e := range c.kept {
		if k.pack.Retired() || now.Sub(e.used) >= idle {
			c.drop(k, e)
		}
	}
}

func (c *Cache) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(time.Now())
	if len(c.kept) > 0 {
		c.timer.Reset(idle / 4)
	} else {
		c.timer = nil
	}
}

// scratch is what making a piece needs for a moment.
type scratch struct {
	text, packed []byte
	out          sliceWriter
	compressor   *flate.Writer
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// maxScratch bounds the buffers that are kept for the next piece.
const maxScratch = 1 << 20

func (s *scratch) release() {
	if cap(s.text) <= maxScratch && cap(s.packed) <= maxScratch {
		scratches.Put(s)
	}
}

// pieceLevel compresses realistic Pods best for the time it takes.
const pieceLevel = 5

// deflate appends a run of deflate blocks that ends at a byte.
func (s *scratch) deflate(dst, text []byte) ([]byte, error) {
	s.out.b = dst
	if s.compressor == nil {
		w, err := flate.NewWriter(&s.out, pieceLevel)
		if err != nil {
			return nil, fmt.Errorf("compressor: %w", err)
		}
		s.compressor = w
	} else {
		s.compressor.Reset(&s.out)
	}
	if _, err := s.compressor.Write(text); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	if err := s.compressor.Flush(); err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	return s.out.b, nil
}

// sliceWriter appends what is written.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
