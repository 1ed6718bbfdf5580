package gateway

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipThreshold is the size of an answer above which it is compressed, as in
// kube-apiserver: below it compression costs more time than it saves.
const gzipThreshold = 128 << 10

var gzipWriters = sync.Pool{New: func() any {
	gz, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(fmt.Sprintf("gzip level: %v", err)) // a constant level
	}
	return gz
}}

// body is the body of one answer. It holds back the first gzipThreshold bytes
// of an answer of unknown size to decide whether it is compressed; a client
// that takes no gzip gets its first byte at once.
type body struct {
	w           http.ResponseWriter
	contentType string
	code        int
	gzip        bool // accepted by the client
	size        int  // -1 when not known
	held        []byte
	out         io.Writer // nil until the header has been written
	gz          *gzip.Writer
}

func newBody(w http.ResponseWriter, r *http.Request, contentType string, code int) *body {
	return &body{w: w, contentType: contentType, code: code, gzip: acceptsGzip(r), size: -1}
}

// announce tells the size of the whole body before the first Write.
func (b *body) announce(size int) { b.size = size }

// started says that the header has gone out.
func (b *body) started() bool { return b.out != nil }

func (b *body) Write(p []byte) (int, error) {
	switch {
	case b.started():
		return b.out.Write(p)
	case b.gzip && b.size < 0 && len(b.held)+len(p) <= gzipThreshold:
		b.held = append(b.held, p...)
		return len(p), nil
	}
	b.start(b.gzip && (b.size < 0 || b.size > gzipThreshold))
	if len(b.held) > 0 {
		if _, err := b.out.Write(b.held); err != nil {
			return 0, err
		}
		b.held = nil
	}
	return b.out.Write(p)
}

func (b *body) start(compress bool) {
	header := b.w.Header()
	header.Set("Content-Type", b.contentType)
	b.out = b.w
	if compress {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		b.gz = gzipWriters.Get().(*gzip.Writer)
		b.gz.Reset(b.w)
		b.out = b.gz
	} else if b.size >= 0 {
		header.Set("Content-Length", contentLength(b.size))
	}
	b.w.WriteHeader(b.code)
}

// Close sends what is held back and ends the compressed stream.
func (b *body) Close() error {
	if !b.started() {
		b.size = len(b.held)
		b.start(false)
		if _, err := b.out.Write(b.held); err != nil {
			return err
		}
		b.held = nil
	}
	if b.gz != nil {
		return b.gz.Close()
	}
	return nil
}

// release gives the compressor back; the answer is not completed by it.
func (b *body) release() {
	if b.gz != nil {
		b.gz.Reset(io.Discard)
		gzipWriters.Put(b.gz)
		b.gz = nil
	}
}
