package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// maxAnswer bounds the answer about one object: an object that is close to
// the 3 MiB of a request, in the longer of the encodings.
const maxAnswer = 16 << 20

// Request is one request for one answer.
type Request struct {
	Method   string
	Path     string // escaped
	RawQuery string
	Header   http.Header // clean (CleanHeaders), or made here
	Body     []byte
	// User is impersonated; nil speaks as the member's own identity.
	User user.Info
}

// Response is a whole answer.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Do sends the request once and reads the answer. A member that lives may take
// its time within a limit; one that gives no sign of life within some seconds
// is ErrFrozen. The error is an *UnreachableError, the context's, or ErrPath.
func (t *Transport) Do(ctx context.Context, q Request) (*Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime(ctx, t.answerLimit), ErrTooLong)
	defer cancel()
	req, sent, err := t.request(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := t.unlessSilent(ctx); err != nil {
		return nil, err
	}
	resp, err := t.roundTrip(req)
	if err != nil {
		return nil, t.unreachable(ctx, sent.Load(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, t.unreachable(ctx, true, fmt.Errorf("reading the answer: %w", err))
	}
	if len(body) > maxAnswer {
		return nil, t.unreachable(ctx, true, ErrTooLarge)
	}
	if err := refused(resp); err != nil {
		return nil, t.unreachable(ctx, false, err)
	}
	CleanAnswer(resp.Header)
	return &Response{Code: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// answerTime is how long a member has: what the client's own deadline leaves,
// less what it takes to tell the client which member was too slow.
func answerTime(ctx context.Context, limit time.Duration) time.Duration {
	const telling = 500 * time.Millisecond
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit
	}
	left := time.Until(deadline)
	return min(limit, left-min(telling, left/4))
}

func (t *Transport) request(ctx context.Context, q Request) (*http.Request, *atomic.Bool, error) {
	u, err := t.URL(q.Path, q.RawQuery)
	if err != nil {
		return nil, nil, err
	}
	sent := new(atomic.Bool)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, q.Method, u.String(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, nil, fmt.Errorf("request to %s: %w", describe(t.name), err)
	}
	if len(q.Body) == 0 {
		req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0
	}
	req.URL = u
	if q.Header != nil {
		req.Header = q.Header.Clone()
	}
	if q.User != nil {
		if err := Impersonate(req.Header, q.User); err != nil {
			return nil, nil, err
		}
	}
	return req, sent, nil
}

// refused are answers that must not reach the client as they are.
func refused(resp *http.Response) error {
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.StatusCode != http.StatusNotModified:
		return ErrRedirect
	case resp.StatusCode == http.StatusUnauthorized:
		return ErrCredentials
	}
	return nil
}

// roundTrip waits for the head of an answer for as long as the member lives.
func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	headed := make(chan struct{})
	go t.superintend(ctx, headed, cancel)
	resp, err := t.rt.RoundTrip(req.WithContext(ctx))
	close(headed)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	t.heard()
	// The body needs the context; it is released when the body is closed.
	resp.Body = &cancelOnClose{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (c *cancelOnClose) Close() error {
	err := c.ReadCloser.Close()
	c.cancel(nil)
	return err
}

// superintend asks a member that is silent for longer than patience whether it
// lives, again and again, and ends the request when it does not say so.
func (t *Transport) superintend(ctx context.Context, headed <-chan struct{}, cancel context.CancelCauseFunc) {
	for {
		timer := time.NewTimer(t.patience)
		select {
		case <-headed:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		asked := time.Now().UnixNano()
		if err := t.alive(ctx); err != nil && t.answered.Load() < asked {
			t.silentAt.Store(time.Now().UnixNano())
			cancel(fmt.Errorf("%w: %w", ErrFrozen, err))
			return
		}
	}
}

// alive is satisfied by any answer at all.
func (t *Transport) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.probe, silence(t.probe))
	defer cancel()
	u, err := t.URL("/livez", "")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := t.rt.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return resp.Body.Close()
}

// unreachable states what went wrong. A client that went away is no fault of
// the member.
func (t *Transport) unreachable(ctx context.Context, sent bool, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
		err = cause
	}
	return t.gone(sent, err)
}
