package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

const (
	// ReadyPath answers 200 where a gateway wants requests.
	ReadyPath = "/isthmus/replication/v1/ready"
	// probeEvery is how often each gateway is asked, probeWait how long it may
	// take, and probeFailures how often in a row it may fail: a gateway that
	// stands still has its connections ended after that.
	probeEvery    = time.Second
	probeWait     = 2 * time.Second
	probeFailures = 3
)

// condition of a gateway, the better ones first.
type condition int

const (
	ready condition = iota
	unready
	down
)

// pool sends requests to the first gateway that is well.
type pool struct{ targets []*target }

// target is one gateway.
type target struct {
	address   string
	transport *http.Transport

	mu        sync.Mutex
	condition condition
	failures  int
	conns     map[net.Conn]struct{}
}

func newPool(addresses []string, transport func() *http.Transport) *pool {
	p := &pool{}
	for _, a := range addresses {
		t := &target{address: a, transport: transport(), conns: map[net.Conn]struct{}{}}
		dial := t.transport.DialContext
		t.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := dial(ctx, network, t.address)
			if err != nil {
				return nil, err
			}
			return t.track(conn), nil
		}
		p.targets = append(p.targets, t)
	}
	return p
}

// order lists the gateways, those that are well first, else as they were given.
func (p *pool) order() []*target {
	var by [down + 1][]*target
	for _, t := range p.targets {
		t.mu.Lock()
		c := t.condition
		t.mu.Unlock()
		by[c] = append(by[c], t)
	}
	return append(append(by[ready], by[unready]...), by[down]...)
}

// RoundTrip implements http.RoundTripper. What was never sent, and what only
// reads, is tried at the next gateway.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	var failures []error
	unsent := true
	order := p.order()
	for i, t := range order {
		out := r
		if r.Body != nil && r.Body != http.NoBody {
			out = r.Clone(r.Context())
			out.Body = io.NopCloser(r.Body) // a failed dial closes it, and has not read it
		}
		resp, err := t.transport.RoundTrip(out)
		if err == nil && (i == len(order)-1 || !elsewhere(r, resp)) {
			return resp, nil
		}
		if err == nil {
			err = errors.Join(errElsewhere, resp.Body.Close())
		}
		failures = append(failures, fmt.Errorf("%s: %w", t.address, err))
		never := neverSent(err)
		unsent = unsent && never
		if r.Context().Err() != nil || !never && !repeatable(r) {
			break
		}
	}
	err := errors.Join(failures...)
	if unsent {
		return nil, &notSentError{err}
	}
	return nil, err
}

var errElsewhere = errors.New("another gateway may lead")

// elsewhere says that a gateway sends what only reads to another one.
func elsewhere(r *http.Request, resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get(proxy.NotLeadingHeader) != "" && repeatable(r)
}

// repeatable says that a request changes nothing.
func repeatable(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || r.Header.Get("Upgrade") != "" || local[info.Subresource] {
		return false
	}
	return info.Verb == "get" || info.Verb == "list" || info.Verb == "watch"
}

// run asks the gateways how they are.
func (p *pool) run(ctx context.Context) {
	if len(p.targets) < 2 {
		return // there is nothing to choose
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, t := range p.targets {
		wg.Go(func() {
			tick := time.NewTicker(probeEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				if c, changed := t.judge(t.probe(ctx)); changed && ctx.Err() == nil {
					klog.FromContext(ctx).Info("Gateway has changed", "address", t.address, "ready", c == ready, "reached", c != down)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
}

var errUnready = errors.New("the gateway is not ready")

func (t *target) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	u := url.URL{Scheme: "https", Host: t.address, Path: ReadyPath}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := t.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errUnready
	}
	return nil // one without this path is as well as it answers
}

// judge takes the outcome of a probe. A gateway that is down loses its
// connections: watches end, and begin again at another.
func (t *target) judge(err error) (now condition, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.condition
	switch {
	case err == nil:
		t.condition, t.failures = ready, 0
	case errors.Is(err, errUnready):
		t.condition, t.failures = unready, 0
	default:
		if t.failures++; t.failures >= probeFailures || neverSent(err) {
			t.condition = down
		}
	}
	if t.condition == down {
		for conn := range t.conns {
			_ = conn.Close() // nobody is at its other end
		}
		clear(t.conns)
	}
	return t.condition, before != t.condition
}

// track remembers a connection until it is closed.
func (t *target) track(conn net.Conn) net.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &trackedConn{Conn: conn, target: t}
	t.conns[conn] = struct{}{}
	return c
}

type trackedConn struct {
	net.Conn
	target *target
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.target.mu.Lock()
	delete(c.target.conns, c.Conn)
	c.target.mu.Unlock()
	return c.Conn.Close()
}
