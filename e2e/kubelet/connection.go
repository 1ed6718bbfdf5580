package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
)

// Once a connection is upgraded, net/http no longer notices its end, so the
// context of its request would never be cancelled and a process outlive the
// client that waits for it. A watchedConn cancels it when a read fails.
type watchedConn struct {
	net.Conn

	mu     sync.Mutex
	ended  bool
	cancel context.CancelFunc
}

type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn}, nil
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *watchedConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

// endWithConnection derives the context of a connection's requests.
func endWithConnection(ctx context.Context, conn net.Conn) context.Context {
	over, ok := conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	watched, ok := over.NetConn().(*watchedConn)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	watched.mu.Lock()
	defer watched.mu.Unlock()
	watched.cancel = cancel
	if watched.ended {
		cancel()
	}
	return ctx
}
