package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
)

// watchBody writes a stream of events. Every flush has a deadline: a client
// that does not read loses its watch and resumes from its last RV.
type watchBody struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	gzip    *gzipStream // nil when not compressed
	dirty   bool
}

// openWatchBody sends the header at once, so that a client knows that its
// watch is on before the first event.
func openWatchBody(w http.ResponseWriter, contentType string, compress bool, timeout time.Duration) (*watchBody, error) {
	b := &watchBody{w: w, control: http.NewResponseController(w), timeout: timeout}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache, private")
	if compress {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		b.gzip = &gzipStream{w: w}
	}
	w.WriteHeader(http.StatusOK)
	if err := b.control.Flush(); err != nil {
		return nil, fmt.Errorf("flushing the header of a watch: %w", err)
	}
	return b, nil
}

// send writes and flushes.
func (b *watchBody) send(p []byte) error {
	if err := b.write(p); err != nil {
		return err
	}
	return b.flush()
}

func (b *watchBody) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if !b.dirty {
		b.dirty = true
		b.deadline(time.Now().Add(b.timeout))
	}
	var out io.Writer = b.w
	if b.gzip != nil {
		out = b.gzip
	}
	if _, err := out.Write(p); err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

func (b *watchBody) flush() error {
	if !b.dirty {
		return nil
	}
	if b.gzip != nil {
		if err := b.gzip.flush(); err != nil {
			return fmt.Errorf("%w: %w", errClientGone, err)
		}
	}
	if err := b.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	b.dirty = false
	// Over HTTP/2 a deadline that passes ends even an idle stream.
	b.deadline(time.Time{})
	return nil
}

// deadline bounds the next write where the connection can do that; where it
// cannot, a dead client is noticed by the connection's own keep-alive.
func (b *watchBody) deadline(t time.Time) {
	if err := b.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		b.timeout = 0 // the connection is closed: the write will say so
	}
}

// close ends the compressed stream; the connection stays usable.
func (b *watchBody) close() {
	if b.gzip != nil {
		if err := b.gzip.close(); err != nil {
			return // the client is gone
		}
	}
	b.deadline(time.Time{})
}

var flateWriters = sync.Pool{New: func() any {
	fw, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		panic(fmt.Sprintf("flate level: %v", err)) // a constant level
	}
	return fw
}}

// gzipStream is one gzip member whose deflate blocks are made by a compressor
// that is borrowed for the time of one flush: each flush ends in an empty
// stored block, and no block refers to what an earlier one held. So an idle
// watch has no compressor, and every client can read on without an end.
type gzipStream struct {
	w      io.Writer
	fw     *flate.Writer
	crc    uint32
	size   uint32
	opened bool
}

// gzipHeader names deflate, no flags, no time, the fastest level.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

func (g *gzipStream) Write(p []byte) (int, error) {
	if !g.opened {
		g.opened = true
		if _, err := g.w.Write(gzipHeader); err != nil {
			return 0, err
		}
	}
	if g.fw == nil {
		g.fw = flateWriters.Get().(*flate.Writer)
		g.fw.Reset(g.w)
	}
	g.crc = crc32.Update(g.crc, crc32.IEEETable, p)
	g.size += uint32(len(p)) //nolint:gosec // the size is kept modulo 2^32
	return g.fw.Write(p)
}

func (g *gzipStream) flush() error {
	if g.fw == nil {
		return nil
	}
	err := g.fw.Flush()
	g.fw.Reset(io.Discard)
	flateWriters.Put(g.fw)
	g.fw = nil
	return err
}

// finalBlock is an empty deflate block that is marked as the last one.
var finalBlock = []byte{0x03, 0x00}

func (g *gzipStream) close() error {
	if err := g.flush(); err != nil {
		return err
	}
	if !g.opened {
		if _, err := g.w.Write(gzipHeader); err != nil {
			return err
		}
	}
	tail := binary.LittleEndian.AppendUint32(slices.Clip(finalBlock), g.crc)
	_, err := g.w.Write(binary.LittleEndian.AppendUint32(tail, g.size))
	return err
}
