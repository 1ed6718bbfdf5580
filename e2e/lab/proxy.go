package lab

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Proxy is a TCP relay in front of a member, for breaking its network. Its
// address never changes.
//
//	         Cut               Blackhole            DropUpstream
//	new      refused           accepted, silent     accepted, answers lost
//	open     reset             silent both ways     requests arrive, answers lost
//
// Heal returns to relaying; connections that lost bytes meanwhile are reset,
// because a TLS stream with a hole is of no use.
type Proxy struct {
	addr, upstream string

	mu       sync.Mutex
	mode     proxyMode
	delay    time.Duration
	listener net.Listener
	links    map[*link]struct{}
	closed   bool
	work     sync.WaitGroup
}

type proxyMode int

const (
	relaying proxyMode = iota
	cut
	blackholed
	dropUpstream
)

// link is one client connection and, unless it came to a black hole, its
// connection to the member.
type link struct {
	client   net.Conn
	upstream net.Conn
	lossy    bool // bytes were swallowed; guarded by Proxy.mu
}

func (l *link) reset() {
	for _, conn := range []net.Conn{l.client, l.upstream} {
		if conn == nil {
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset rather than an orderly end; closed below anyway
		}
		_ = conn.Close()
	}
}

// ErrProxyClosed is returned by Heal after Close.
var ErrProxyClosed = errors.New("lab: proxy closed")

// NewProxy listens on a free port of 127.0.0.1 and relays to HOST:PORT.
func NewProxy(upstream string) (*Proxy, error) {
	var lastErr error
	for range 20 {
		port, err := freePort(map[int]bool{})
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		p := &Proxy{
			addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			upstream: upstream, links: map[*link]struct{}{},
		}
		p.mu.Lock()
		lastErr = p.listen()
		p.mu.Unlock()
		if lastErr == nil {
			return p, nil
		}
	}
	return nil, lastErr
}

// Proxy starts a proxy in front of the member's API.
func (m *Member) Proxy() (*Proxy, error) { return NewProxy(m.Address()) }

// Addr is HOST:PORT of the proxy.
func (p *Proxy) Addr() string { return p.addr }

// listen needs p.mu.
func (p *Proxy) listen() error {
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p.listener = listener
	p.work.Go(func() { p.accept(listener) })
	return nil
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed by Cut or Close
		}
		p.work.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client}
	defer p.drop(l)
	if !p.adopt(l) {
		return
	}
	if p.current() == blackholed {
		p.lose(l)
		p.discard(l)
		return
	}
	upstream, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		return // the client sees a reset, as from a member that is down
	}
	p.mu.Lock()
	l.upstream = upstream
	gone := p.closed || p.mode == cut
	p.mu.Unlock()
	if gone {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, client, upstream, false) })
	pumps.Go(func() { p.pump(l, upstream, client, true) })
	pumps.Wait()
}

// adopt registers the link unless the proxy was cut meanwhile.
func (p *Proxy) adopt(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == cut {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) drop(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	l.reset()
}

func (p *Proxy) current() proxyMode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

func (p *Proxy) lose(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.lossy = true
}

func (p *Proxy) discard(l *link) {
	buf := make([]byte, 32<<10)
	for {
		if _, err := l.client.Read(buf); err != nil {
			return
		}
	}
}

// chunk is a piece of the stream and when it may leave; nil data is its end.
type chunk struct {
	data []byte
	due  time.Time
}

// pump relays one direction. A reader stamps what it reads and a writer holds it
// back until it is due, so that a delay is latency and not a lower bandwidth.
func (p *Proxy) pump(l *link, from, to net.Conn, answers bool) {
	chunks := make(chan chunk, 256)
	var writer sync.WaitGroup
	writer.Go(func() { p.write(l, to, chunks, answers) })
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		p.mu.Lock()
		due := time.Now().Add(p.delay)
		p.mu.Unlock()
		if n > 0 {
			chunks <- chunk{buf[:n], due}
		}
		if err != nil {
			chunks <- chunk{nil, due}
			break
		}
	}
	close(chunks)
	writer.Wait()
}

func (p *Proxy) write(l *link, to net.Conn, chunks <-chan chunk, answers bool) {
	failed := false
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if failed || p.swallowed(l, answers) {
			continue
		}
		if c.data == nil {
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // the other end may be gone already
			}
			continue
		}
		if _, err := to.Write(c.data); err != nil {
			failed = true
			l.reset() // wakes the reader, which ends the link
		}
	}
}

// swallowed reports whether the mode eats this direction and marks the link.
// A lossy link stays silent: its stream has a hole.
func (p *Proxy) swallowed(l *link, answers bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	eats := p.mode == blackholed || p.mode == dropUpstream && answers
	if eats {
		l.lossy = true
	}
	return eats
}

// Cut resets every connection and refuses new ones.
func (p *Proxy) Cut() { p.set(cut) }

// Blackhole keeps connections open, accepts new ones and passes nothing.
func (p *Proxy) Blackhole() { p.set(blackholed) }

// DropUpstream lets requests of open connections through and loses the answers.
func (p *Proxy) DropUpstream() { p.set(dropUpstream) }

// Delay holds every byte back for d in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) set(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.mode = mode
	if mode == cut && p.listener != nil {
		_ = p.listener.Close() // nothing to lose
		p.listener = nil
		for l := range p.links {
			l.reset()
		}
		return
	}
	if mode != cut && p.listener == nil {
		_ = p.listen() // when the port is lost, Heal will say so
	}
}

// Heal relays again, without delay, and resets connections that lost bytes.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrProxyClosed
	}
	p.mode, p.delay = relaying, 0
	for l := range p.links {
		if l.lossy {
			l.reset()
		}
	}
	if p.listener != nil {
		return nil
	}
	return p.listen()
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close() // nothing to lose
		p.listener = nil
	}
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.work.Wait()
}
