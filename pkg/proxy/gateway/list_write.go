package gateway

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway/pieces"
)

// chunk is how many bytes are gathered before they are written.
const chunk = 64 << 10

// piecePlan says how parts of a list can be kept encoded, so that the next LIST
// need not encode them again.
type piecePlan struct {
	form string // equal forms make equal bytes
	// plain and gzip say for which answers that pays.
	plain, gzip bool
	// separated says that something stands between two items: a piece begins
	// with it.
	separated bool
	// items appends all items of a pack at once; nil where they are encoded
	// one by one.
	items func(dst []byte, p cache.Pack) ([]byte, error)
	// fillIn makes the items of what is kept, which is only a template; nil
	// where it is the items.
	fillIn func(dst, template []byte, now time.Time) []byte
}

// writeList streams a page. After the first byte an error can only end the
// connection, which the client notices, as the body lacks its end.
func (h *Handler) writeList(w http.ResponseWriter, r *http.Request, resource string, f form, e encoder, p page) error {
	size, err := listSize(e, &p)
	if err != nil {
		return err
	}
	head, err := e.head(make([]byte, 0, chunk+chunk/4), p.meta, size)
	if err != nil {
		return err
	}
	if !p.longer(gzipThreshold) {
		return h.writeShort(w, r, e, p, head, size)
	}
	x := &listWriter{w: w, encoder: e, plan: e.pieces(), pieces: h.pieces, seats: h.seats, text: head}
	header := w.Header()
	header.Set("Content-Type", e.contentType())
	switch {
	case acceptsGzip(r):
		if x.gzip, err = pieces.NewGzip(); err != nil {
			return err
		}
		defer x.gzip.Release()
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
	case e.sized():
		header.Set("Content-Length", contentLength(len(head)+size+len(e.tail(nil, 0))))
	}
	if err := x.write(r.Context(), p); err != nil {
		if !x.started {
			header.Del("Content-Encoding")
			header.Del("Content-Length")
		}
		return h.abort(r, x.started, err)
	}
	h.listMetrics.observe(resource, f, x)
	return nil
}

// listSize is the sum of the items' sizes, for a form that needs it. What it had
// to look for is held, if it is not much.
func listSize(e encoder, p *page) (size int, err error) {
	if !e.sized() {
		return 0, nil
	}
	var found []cache.Run
	objects, held := 0, true
	for run := range p.runs {
		n, err := runSize(e, run)
		if err != nil {
			return 0, err
		}
		size += n
		objects += len(run.Objects)
		if held = held && objects <= bufferedLimit && len(found) < bufferedLimit; held {
			found = append(found, run)
		} else {
			found = nil
		}
	}
	if held {
		p.held, p.runs = found, slices.Values(found)
	}
	return size, nil
}

func runSize(e encoder, run cache.Run) (size int, err error) {
	if run.Pack != nil {
		if size, known, err := e.packSize(run.Pack); known || err != nil {
			return size, err
		}
	}
	for _, o := range run.All() {
		n, err := e.itemSize(o)
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, nil
}

// longer says whether the objects of a page have more than n bytes.
func (p page) longer(n int) bool {
	for run := range p.runs {
		if run.Pack != nil {
			n -= run.Pack.Raw()
		}
		for _, o := range run.Objects {
			n -= o.Body.Len()
		}
		if n < 0 {
			return true
		}
	}
	return false
}

// writeShort writes a list that is not worth a compressor, or hardly.
func (h *Handler) writeShort(w http.ResponseWriter, r *http.Request, e encoder, p page, buf []byte, size int) (err error) {
	body := newBody(w, r, e.contentType(), http.StatusOK)
	if e.sized() {
		body.announce(len(buf) + size + len(e.tail(nil, 0)))
	}
	defer body.release()
	i := 0
	for o := range objectsOf(p.runs) {
		if buf, err = e.item(buf, i, o); err != nil {
			return h.abort(r, body.started(), err)
		}
		i++
		if len(buf) < chunk {
			continue
		}
		if _, err = body.Write(buf); err != nil {
			return h.abort(r, body.started(), err)
		}
		buf = buf[:0]
	}
	if _, err = body.Write(e.tail(buf, i)); err != nil {
		return h.abort(r, body.started(), err)
	}
	if err := body.Close(); err != nil {
		return h.abort(r, body.started(), err)
	}
	return nil
}

// seats bounds how many LISTs encode at once: the others wait, and whoever has
// an event to deliver finds a processor. A LIST gives its seat back while it
// writes to its client.
type seats chan struct{}

func newSeats() seats { return make(seats, max(1, runtime.GOMAXPROCS(0)*3/4)) }

func (s seats) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s seats) give() { <-s }

// listWriter makes the body of a long list, a chunk at a time.
type listWriter struct {
	w        http.ResponseWriter
	encoder  encoder
	plan     piecePlan
	pieces   *pieces.Cache
	seats    seats
	gzip     *pieces.Gzip // nil for an answer that is not compressed
	text     []byte       // not compressed yet
	template []byte
	items    int
	started  bool
	// What it has cost.
	sent              int
	encoding, waiting time.Duration
}

// take waits for a seat.
func (x *listWriter) take(ctx context.Context) error {
	defer stopwatch(&x.waiting)()
	return x.seats.take(ctx)
}

// write writes the whole body. It holds a seat but while the client reads.
func (x *listWriter) write(ctx context.Context, p page) (err error) {
	if err := x.take(ctx); err != nil {
		return err
	}
	seated, held := true, stopwatch(&x.encoding)
	give := func() {
		if seated {
			seated = false
			held()
			x.seats.give()
		}
	}
	defer give()
	send := func() error {
		if len(x.text) < chunk && (x.gzip == nil || x.gzip.Ready() < chunk) {
			return nil
		}
		if err := x.compress(); err != nil {
			return err
		}
		give()
		if err := x.flush(); err != nil {
			return err
		}
		if err := x.take(ctx); err != nil {
			return err
		}
		seated, held = true, stopwatch(&x.encoding)
		return nil
	}
	for run := range p.consume() {
		if err := x.run(run, send); err != nil {
			return err
		}
	}
	x.text = x.encoder.tail(x.text, x.items)
	if err := x.compress(); err != nil {
		return err
	}
	if x.gzip != nil {
		if err := x.gzip.Close(); err != nil {
			return err
		}
	}
	give()
	return x.flush()
}

// run adds the objects of a run, and sends what has become enough.
func (x *listWriter) run(run cache.Run, send func() error) (err error) {
	if run.Pack != nil {
		added, err := x.pack(run.Pack)
		if err != nil {
			return err
		}
		if added {
			return send()
		}
	}
	for _, o := range run.All() {
		if x.text, err = x.encoder.item(x.text, x.items, o); err != nil {
			return err
		}
		x.items++
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}

// pack adds all of a pack at once, where that can be done.
func (x *listWriter) pack(p cache.Pack) (added bool, err error) {
	if x.plan.separated && x.items == 0 {
		return false, nil
	}
	packing, kept := pieces.ForText, x.plan.plain
	if x.gzip != nil && x.plan.fillIn == nil {
		packing, kept = pieces.ForGzip, x.plan.gzip
	}
	switch {
	case kept:
		err = x.piece(p, packing)
	case x.plan.items != nil && x.gzip == nil:
		x.text, err = x.plan.items(x.text, p)
	default:
		return false, nil
	}
	if errors.Is(err, errNoTemplate) {
		return false, nil
	}
	x.items += p.Len()
	return true, err
}

// piece adds the piece of a pack.
func (x *listWriter) piece(p cache.Pack, packing pieces.Packing) error {
	piece, err := x.pieces.Get(p, x.plan.form, packing, func(dst []byte) ([]byte, error) {
		return x.encode(dst, p)
	})
	switch {
	case err != nil:
		return err
	case packing == pieces.ForGzip:
		if err := x.compress(); err != nil {
			return err
		}
		return x.gzip.Splice(piece)
	case x.plan.fillIn == nil:
		x.text, err = piece.Append(x.text)
		return err
	}
	if x.template, err = piece.Append(x.template[:0]); err == nil {
		x.text = x.plan.fillIn(x.text, x.template, time.Now())
	}
	return err
}

// encode appends the items of a pack, of which none is the first.
func (x *listWriter) encode(dst []byte, p cache.Pack) (_ []byte, err error) {
	if x.plan.items != nil {
		return x.plan.items(dst, p)
	}
	for _, o := range p.Objects() {
		if dst, err = x.encoder.item(dst, 1, o); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// compress gives the text to the compressor, if there is one.
func (x *listWriter) compress() error {
	if x.gzip == nil {
		return nil
	}
	_, err := x.gzip.Write(x.text)
	x.text = x.text[:0]
	return err
}

// flush writes to the client.
func (x *listWriter) flush() error {
	if !x.started {
		x.started = true
		x.w.WriteHeader(http.StatusOK)
	}
	write := func(b []byte) error {
		x.sent += len(b)
		_, err := x.w.Write(b)
		return err
	}
	if x.gzip == nil {
		err := write(x.text)
		x.text = x.text[:0]
		return err
	}
	return x.gzip.Take(write)
}
