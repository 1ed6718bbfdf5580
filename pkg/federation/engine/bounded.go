package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Bounds of what one answer of a member can make us hold: client-go reads an
// answer, and an event of a watch, whole before it looks at it.
const (
	largestObject = 16 << 20
	largestList   = 512 << 20
)

var errAnswerTooLarge = errors.New("the member's answer is larger than any that is in order")

// bounded cuts answers off that a member would go on with for ever.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := &limitedBody{ReadCloser: resp.Body, left: largestObject, limit: largestObject}
	switch query := r.URL.Query(); {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		limit.perLine = true
	case r.Method == http.MethodGet:
		limit.left, limit.limit = largestList, largestList
	}
	resp.Body = limit
	return resp, nil
}

// limitedBody fails where the limit is passed, so that what was read up to there
// is not taken for an answer. Events of a watch end in a line break each.
type limitedBody struct {
	io.ReadCloser
	left, limit int
	perLine     bool
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.perLine {
		if at := bytes.LastIndexByte(p[:n], '\n'); at >= 0 {
			b.left = b.limit - (n - at - 1)
			return n, err
		}
	}
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errAnswerTooLarge, b.limit)
	}
	return n, err
}
