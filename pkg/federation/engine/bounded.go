package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Bounds of what the answers of a member can make us hold: client-go reads an
// answer, and an event of a watch, whole before it looks at it.
const (
	largestObject = 16 << 20
	largestList   = 128 << 20
	// largeFrom is what is read of one before it needs a turn: a member has one
	// large answer under way.
	largeFrom = 2 << 20
)

var errAnswerTooLarge = errors.New("the member's answer is larger than any that is in order")

// bounded cuts answers off that a member would go on with for ever.
type bounded struct {
	next http.RoundTripper
	turn chan struct{} // with room for one
}

func newBounded(next http.RoundTripper) bounded {
	return bounded{next, make(chan struct{}, 1)}
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body := &limitedBody{ReadCloser: resp.Body, ctx: r.Context(), turn: b.turn, limit: largestObject}
	switch query := r.URL.Query(); {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		body.perLine = true
	case r.Method == http.MethodGet:
		body.limit = largestList
	}
	resp.Body = body
	return resp, nil
}

// limitedBody fails where the limit is passed, so that what was read up to there
// is not taken for an answer. Events of a watch end in a line break each.
type limitedBody struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // of the request, as long as its answer is read
	turn    chan struct{}
	holds   bool // its turn
	read    int  // of this answer, or event
	limit   int
	perLine bool
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if err := b.await(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.read += n
	if b.perLine {
		if at := bytes.LastIndexByte(p[:n], '\n'); at >= 0 {
			b.read = n - at - 1
			b.release()
		}
	}
	if b.read > b.limit {
		return 0, fmt.Errorf("%w: more than %d bytes", errAnswerTooLarge, b.limit)
	}
	return n, err
}

func (b *limitedBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

// await takes a turn for what has become large.
func (b *limitedBody) await() error {
	if b.holds || b.read <= largeFrom {
		return nil
	}
	select {
	case b.turn <- struct{}{}:
		b.holds = true
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

func (b *limitedBody) release() {
	if b.holds {
		b.holds = false
		<-b.turn
	}
}
