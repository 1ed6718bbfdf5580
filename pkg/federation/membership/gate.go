package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Errors with which the transports of a member refuse to send.
var (
	ErrIdentityChanged   = errors.New("the cluster behind the address is not the one that joined")
	ErrDuplicateIdentity = errors.New("the cluster has already joined under another name")
	ErrLeft              = errors.New("the cluster has left")
	ErrForeignHost       = errors.New("request leaves the member's address")
)

// trust says whether the member has shown its identity since the last sign of
// a broken connection.
//
//	doubt() -> unconfirmed -- confirm() ok --> confirmed
//	              ^                               |
//	              +------- transport error -------+
//	block(err) -> blocked, until unblock()
type trust struct {
	mu        sync.Mutex
	confirmed bool
	epoch     uint64 // counts doubts, so that an answer to an older question does not settle a newer one
	blocked   error
	// silence is what the last question brought instead of an answer.
	silence   error
	silenceAt time.Time

	// ask shows the member's identity to be the expected one.
	ask    func(ctx context.Context) error
	flight singleflight.Group
}

func (t *trust) block(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocked, t.confirmed = err, false
	t.epoch++
}

func (t *trust) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.confirmed = false
	t.epoch++
}

// fail is a doubt because the member did not answer.
func (t *trust) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.confirmed = false
	t.epoch++
	t.silence, t.silenceAt = err, time.Now()
}

// silent returns why the member could not be asked a moment ago.
func (t *trust) silent() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.silenceAt) > silenceLasts {
		return nil
	}
	return t.silence
}

// settle records that the identity was seen to be right by a question that was
// put at the given epoch.
func (t *trust) settle(epoch uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch == epoch && t.blocked == nil {
		t.confirmed, t.silence = true, nil
	}
}

// unblock lifts a block; the identity is unconfirmed after it.
func (t *trust) unblock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blocked, t.silence = nil, nil
}

func (t *trust) state() (confirmed bool, epoch uint64, blocked error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.confirmed, t.epoch, t.blocked
}

// allow returns nil when a request may be sent, after asking if need be.
func (t *trust) allow(ctx context.Context) error {
	confirmed, epoch, blocked := t.state()
	if blocked != nil {
		return blocked
	}
	if confirmed {
		return nil
	}
	// The question outlives the one who asked: others wait for it too. It
	// has a time limit of its own.
	ch := t.flight.DoChan(fmt.Sprint(epoch), func() (any, error) {
		if err := t.ask(context.WithoutCancel(ctx)); err != nil {
			t.note(err)
			return nil, err
		}
		t.settle(epoch)
		return nil, nil
	})
	var enough <-chan time.Time
	silence := t.silent()
	if silence != nil {
		timer := time.NewTimer(backAtOnce)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case r := <-ch:
		return r.Err
	case <-enough:
		return silence
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// backAtOnce is how long one waits for a member that did not answer a
	// moment ago, and silenceLasts how long that is.
	backAtOnce   = 500 * time.Millisecond
	silenceLasts = 30 * time.Second
)

// note keeps what a question brought for those who come next.
func (t *trust) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.confirmed {
		t.silence, t.silenceAt = err, time.Now()
	}
}

// gate is the outermost round tripper of a member's config: it lets requests
// pass only to the member's own host and only to the confirmed member, and
// adds the current token.
type gate struct {
	base  http.RoundTripper
	host  string
	token *atomic.Pointer[string]
	trust *trust
	// unauthorized is told of a 401.
	unauthorized func()
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != g.host || req.URL.Scheme != "https" {
		// A redirect must not carry the token away, nor show it on the way.
		return nil, refuse(req, fmt.Errorf("%w: %s", ErrForeignHost, req.URL.Host))
	}
	if err := g.trust.allow(req.Context()); err != nil {
		return nil, refuse(req, err)
	}
	if token := g.token.Load(); token != nil && *token != "" && req.Header.Get("Authorization") == "" {
		req = utilnet.CloneRequest(req)
		req.Header.Set("Authorization", "Bearer "+*token)
	}
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		if req.Context().Err() == nil {
			g.trust.doubt()
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		g.unauthorized()
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the dialer and TLS config below.
func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.base }

// refuse keeps the contract of RoundTripper: the body is closed on errors too.
func refuse(req *http.Request, err error) error {
	if req.Body != nil {
		return errors.Join(err, req.Body.Close())
	}
	return err
}
