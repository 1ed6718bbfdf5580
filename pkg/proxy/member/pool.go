package member

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"unsafe"

	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Pool keeps one Transport per member, and makes a new one when the member's
// configuration has changed. The zero value is ready.
type Pool struct {
	mu      sync.Mutex
	entries map[cache.ClusterName]*entry
}

type entry struct {
	config      *rest.Config
	fingerprint fingerprint
	t           *Transport
}

// For returns the transport for a member's present configuration. A config
// must not be changed once it has been given here.
func (p *Pool) For(name cache.ClusterName, config *rest.Config) (*Transport, error) {
	if config == nil {
		return nil, &UnreachableError{Cluster: name, Err: fmt.Errorf("no address and credentials are known")}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[name]
	if e != nil && e.config == config {
		return e.t, nil
	}
	fp := fingerprintOf(config)
	if e != nil && e.fingerprint == fp {
		e.config = config
		return e.t, nil
	}
	t, err := New(name, config)
	if err != nil {
		return nil, &UnreachableError{Cluster: name, Err: err}
	}
	if e != nil {
		e.t.Close()
	}
	if p.entries == nil {
		p.entries = make(map[cache.ClusterName]*entry)
	}
	p.entries[name] = &entry{config: config, fingerprint: fp, t: t}
	return t, nil
}

// Retain forgets the members that keep does not know.
func (p *Pool) Retain(keep func(cache.ClusterName) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, e := range p.entries {
		if !keep(name) {
			e.t.Close()
			delete(p.entries, name)
		}
	}
}

// fingerprint is equal for two configs that lead to the same connection.
type fingerprint struct {
	fields [sha256.Size]byte
	// Functions and interfaces have no other identity than the value.
	wrap, dial, proxy unsafe.Pointer
	transport         any
	exec, auth        any
}

func fingerprintOf(c *rest.Config) fingerprint {
	h := sha256.New()
	// %q keeps neighbouring fields apart.
	_, _ = fmt.Fprintf(h, "%q %q %q %q %q %q %q %t %q ", c.Host, c.APIPath, c.Username, c.Password,
		c.BearerToken, c.BearerTokenFile, c.UserAgent, c.DisableCompression, c.Impersonate)
	tc := c.TLSClientConfig
	_, _ = fmt.Fprintf(h, "%t %q %q %q %q %q %q %q %q", tc.Insecure, tc.ServerName, tc.CertFile, tc.KeyFile,
		tc.CAFile, tc.CertData, tc.KeyData, tc.CAData, tc.NextProtos)
	f := fingerprint{exec: c.ExecProvider, auth: c.AuthProvider}
	h.Sum(f.fields[:0])
	// A func value is a pointer to its closure, so equal pointers mean
	// the same function with the same captured variables.
	f.wrap = *(*unsafe.Pointer)(unsafe.Pointer(&c.WrapTransport))
	f.dial = *(*unsafe.Pointer)(unsafe.Pointer(&c.Dial))
	f.proxy = *(*unsafe.Pointer)(unsafe.Pointer(&c.Proxy))
	if c.Transport != nil {
		f.transport = fmt.Sprintf("%T %p", c.Transport, c.Transport)
	}
	return f
}
