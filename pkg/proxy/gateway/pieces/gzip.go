package pieces

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// Gzip writes one gzip member of text, which it compresses, and of pieces, which
// are put in as they are. It collects bytes until Take is called and writes
// nowhere itself.
type Gzip struct {
	out        sliceWriter
	compressor *flate.Writer
	fresh      bool // the compressor knows nothing of what precedes
	dirty      bool // it holds text that has not come out
	crc        uint32
	size       uint32
}

// textLevel is for what is compressed for one reader only.
const textLevel = 2

var gzips = sync.Pool{New: func() any { return &Gzip{} }}

// NewGzip begins a member. Release gives it back.
func NewGzip() (*Gzip, error) {
	g := gzips.Get().(*Gzip)
	if g.compressor == nil {
		w, err := flate.NewWriter(&g.out, textLevel)
		if err != nil {
			return nil, fmt.Errorf("compressor: %w", err)
		}
		g.compressor = w
	} else {
		g.compressor.Reset(&g.out)
	}
	g.fresh, g.dirty, g.crc, g.size = true, false, 0, 0
	// Magic, deflate, no flags, no time, fastest, unknown system.
	g.out.b = append(g.out.b[:0], 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255)
	return g, nil
}

// Release gives the compressor to the next user.
func (g *Gzip) Release() {
	if cap(g.out.b) <= maxScratch {
		gzips.Put(g)
	}
}

// Write compresses text. It never fails for want of a reader.
func (g *Gzip) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if !g.fresh && !g.dirty { // pieces have come since: what they hold is no past of this text
		g.compressor.Reset(&g.out)
	}
	g.fresh, g.dirty = false, true
	g.crc = crc32.Update(g.crc, crc32.IEEETable, text)
	g.size += uint32(len(text)) //nolint:gosec // modulo 2^32, as the format has it
	n, err := g.compressor.Write(text)
	if err != nil {
		return n, fmt.Errorf("compressing: %w", err)
	}
	return n, nil
}

// Splice puts a piece in that is packed for it.
func (g *Gzip) Splice(p *Piece) error {
	if g.dirty {
		if err := g.compressor.Flush(); err != nil {
			return fmt.Errorf("compressing: %w", err)
		}
		g.dirty = false
	}
	g.fresh = false
	p.ref.View(func(b []byte) { g.out.b = append(g.out.b, b...) })
	g.crc = combine(g.crc, p.crc, p.shift)
	g.size += uint32(p.raw) //nolint:gosec // modulo 2^32, as the format has it
	return nil
}

// Close ends the member.
func (g *Gzip) Close() error {
	if !g.dirty {
		g.compressor.Reset(&g.out)
	}
	if err := g.compressor.Close(); err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	g.out.b = binary.LittleEndian.AppendUint32(g.out.b, g.crc)
	g.out.b = binary.LittleEndian.AppendUint32(g.out.b, g.size)
	return nil
}

// Ready is what Take will give.
func (g *Gzip) Ready() int { return len(g.out.b) }

// Take calls fn with what has come out so far.
func (g *Gzip) Take(fn func([]byte) error) error {
	err := fn(g.out.b)
	g.out.b = g.out.b[:0]
	return err
}
