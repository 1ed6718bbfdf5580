package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// endless repeats a text until it is stopped.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.text[(e.read+n)%len(e.text):])
	}
	e.read += n
	return n, nil
}

func (e *endless) Close() error { return nil }

type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func TestEndlessAnswersAreCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		method, url, text string
		most              int
	}{
		"a write":  {http.MethodPatch, "https://m/apis/apps/v1/namespaces/a/deployments/b", "x\n", largestObject},
		"a list":   {http.MethodGet, "https://m/api/v1/configmaps?limit=500", "x\n", largestList},
		"an event": {http.MethodGet, "https://m/api/v1/configmaps?watch=true", "x", largestObject},
	} {
		t.Run(name, func(t *testing.T) {
			body := &endless{text: c.text}
			rt := newBounded(answering(func(*http.Request) *http.Response { return &http.Response{Body: body} }))
			r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // of the test
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(resp.Body, 2*int64(c.most)), make([]byte, 1<<20))
			if !errors.Is(err, errAnswerTooLarge) || n > int64(c.most) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}

// A watch is as long as it likes, event by event, whatever the sizes of reads.
func TestWatchesAreNotCutOff(t *testing.T) {
	event := strings.Repeat("e", 3<<20) + "\n"
	for _, size := range []int{4 << 10, 5 << 20} {
		body := &limitedBody{ReadCloser: &endless{text: event}, ctx: t.Context(), turn: make(chan struct{}, 1), limit: largestObject, perLine: true}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(struct{ io.Reader }{body}, 100<<20), make([]byte, size))
		if err != nil || n != 100<<20 {
			t.Errorf("reads of %d: %d bytes, %v", size, n, err)
		}
	}
	short := &limitedBody{ReadCloser: io.NopCloser(bytes.NewReader([]byte("short"))), limit: 5}
	if data, err := io.ReadAll(short); err != nil || string(data) != "short" {
		t.Errorf("%q %v", data, err)
	}
}

// One large answer of a member is read at a time, small ones meanwhile, and who
// waits does not wait longer than its request.
func TestLargeAnswersTakeTurns(t *testing.T) {
	rt := newBounded(answering(func(*http.Request) *http.Response { return &http.Response{Body: &endless{text: "x"}} }))
	open := func(ctx context.Context) io.ReadCloser {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://m/api/v1/configmaps", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Body
	}
	first := open(t.Context())
	if _, err := io.CopyN(io.Discard, first, largeFrom*2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := open(ctx)
	if n, err := io.CopyN(io.Discard, second, largeFrom/2); err != nil {
		t.Errorf("a small answer: %d bytes, %v", n, err)
	}
	if _, err := io.CopyN(io.Discard, second, largeFrom*2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second large answer: %v", err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	third := open(t.Context())
	if _, err := io.CopyN(io.Discard, third, largeFrom*2); err != nil {
		t.Errorf("after the first: %v", err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}
