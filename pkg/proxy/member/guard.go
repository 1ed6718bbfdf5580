package member

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"time"
)

// answerWait bounds the time from dialing for an upgrade to the head of the
// member's answer. The member asks its kubelet in between.
const answerWait = 15 * time.Second

var errHeadTooLarge = errors.New("head of the answer is too large")

// guard watches one connection that is dialed for an upgrade: until the
// member's answer has been accepted, time and bytes are limited; afterwards the
// connection can still be ended from outside.
//
//	dialed (limited) --accept--> accepted (unlimited)
//	      \------------end------------/--> closed
type guard struct {
	wait time.Duration

	mu       sync.Mutex
	conn     net.Conn
	accepted bool
	ended    bool
}

type guardKey struct{}

func withGuard(ctx context.Context, g *guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// guardedDial hands connections to the guard of their request.
func guardedDial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		g, ok := ctx.Value(guardKey{}).(*guard)
		if !ok {
			return conn, nil
		}
		return g.take(conn)
	}
}

func (g *guard) take(conn net.Conn) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return nil, errors.Join(context.Canceled, conn.Close())
	}
	g.conn = conn
	if err := conn.SetDeadline(time.Now().Add(g.wait)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &guardedConn{Conn: conn, guard: g, left: maxAnswerHeader}, nil
}

// accept lifts the limits.
func (g *guard) accept() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accepted = true
	if g.conn == nil {
		return nil
	}
	return g.conn.SetDeadline(time.Time{})
}

func (g *guard) isAccepted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted
}

// end closes the connection, now or as soon as it is dialed.
func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.conn != nil {
		// The copying side sees the error of the closed connection.
		_ = g.conn.Close()
	}
}

type guardedConn struct {
	net.Conn
	guard *guard
	left  int // bytes that may be read before the answer is accepted
}

func (c *guardedConn) Read(p []byte) (int, error) {
	if c.left < 0 {
		return c.Conn.Read(p)
	}
	if c.guard.isAccepted() {
		c.left = -1
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p)
	if c.left -= n; c.left < 0 {
		c.left = 0
		return 0, errHeadTooLarge
	}
	return n, err
}

// acceptOnHijack tells the guard that the answer's head has been read: the
// proxy takes the client's connection over only after that.
type acceptOnHijack struct {
	http.ResponseWriter
	guard *guard
	// unauthorized answers instead of a member that refuses our credentials.
	unauthorized func(http.ResponseWriter)
}

func (w acceptOnHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := w.guard.accept(); err != nil {
		return nil, nil, err
	}
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &answeredConn{Conn: conn, unauthorized: w.unauthorized}, buf, nil
}

func (w acceptOnHijack) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answeredConn is a client's connection to which the member's answer is written
// as it came. A 401 speaks of our credentials; the client would read it as one
// about its own.
type answeredConn struct {
	net.Conn
	unauthorized func(http.ResponseWriter)
	begun        bool
}

var statusUnauthorized = regexp.MustCompile(`^HTTP/1\.[01] 401\b`)

func (c *answeredConn) Write(p []byte) (int, error) {
	if c.begun || len(p) == 0 {
		return c.Conn.Write(p)
	}
	c.begun = true
	if !statusUnauthorized.Match(p) {
		return c.Conn.Write(p)
	}
	answer := httptest.NewRecorder()
	c.unauthorized(answer)
	result := answer.Result() //nolint:bodyclose // of a recorder
	result.Close = true
	if err := result.Write(c.Conn); err != nil {
		return 0, err
	}
	return 0, ErrCredentials
}
