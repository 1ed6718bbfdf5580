package member

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// pingAfter and pingTimeout bound how long a dead HTTP/2 connection
	// looks alive.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// maxAnswerHeader bounds what a member can make us hold before its
	// answer begins.
	maxAnswerHeader = 1 << 20
)

// Transport is the way to one member with one set of credentials.
type Transport struct {
	name cache.ClusterName
	base *url.URL
	rt   http.RoundTripper // credentials set, HTTP/2 where possible
	// upgrade dials connections of their own, in HTTP/1.1.
	upgrade utilproxy.UpgradeRequestRoundTripper
	idle    []*http.Transport

	patience    time.Duration // until a silent member is asked whether it lives
	probe       time.Duration // how long it has to say so
	answerLimit time.Duration // how long a living member has for one answer

	answered, silentAt atomic.Int64 // Unix time in ns of the last answer, and of the last probe without one
	failures           failures
}

// New makes a transport from a rest.Config. Config.Timeout is not used: a
// request has its own limits.
func New(name cache.ClusterName, config *rest.Config) (*Transport, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of %s: %w", describe(name), err)
	}
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("transport of %s: %w", describe(name), err)
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, fmt.Errorf("TLS of %s: %w", describe(name), err)
	}
	t := &Transport{
		name: name, base: base,
		patience: time.Second, probe: 3 * time.Second, answerLimit: 60 * time.Second,
	}
	if err := t.connect(config, tc, tlsConfig); err != nil {
		return nil, fmt.Errorf("transport of %s: %w", describe(name), err)
	}
	return t, nil
}

func (t *Transport) connect(config *rest.Config, tc *transport.Config, tlsConfig *tls.Config) error {
	var plain, upgradable http.RoundTripper
	if config.Transport != nil {
		plain, upgradable = config.Transport, config.Transport
	} else {
		dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
		if config.Dial != nil {
			dial = limited(config.Dial)
		}
		h2 := newHTTPTransport(config, dial, tlsConfig, true)
		h1 := newHTTPTransport(config, guardedDial(dial), tlsConfig, false)
		plain, upgradable = h2, h1
		t.idle = []*http.Transport{h2, h1}
	}
	rt, err := transport.HTTPWrappersForConfig(tc, plain)
	if err != nil {
		return err
	}
	headers, err := transport.HTTPWrappersForConfig(tc, utilproxy.MirrorRequest)
	if err != nil {
		return err
	}
	t.rt = rt
	t.upgrade = utilproxy.NewUpgradeRequestRoundTripper(upgradable, headers)
	return nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// limited gives a dialer that has no timeout of its own one.
func limited(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

func newHTTPTransport(config *rest.Config, dial dialFunc, tlsConfig *tls.Config, h2 bool) *http.Transport {
	t := &http.Transport{
		Proxy:                  config.Proxy,
		DialContext:            dial,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ForceAttemptHTTP2:      h2,
		// The client's Accept-Encoding travels; bytes are never unpacked
		// on the way.
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	if tlsConfig != nil {
		t.TLSClientConfig = tlsConfig.Clone()
	}
	if !h2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		if t.TLSClientConfig != nil {
			t.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
	}
	return t
}

// Close drops idle connections; requests that run go on.
func (t *Transport) Close() {
	for _, h := range t.idle {
		h.CloseIdleConnections()
	}
}

// URL is the address of a path in the member. The path is in its escaped form
// and reaches the member as it is.
func (t *Transport) URL(escapedPath, rawQuery string) (*url.URL, error) {
	for segment := range strings.SplitSeq(escapedPath, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
		if hasDotSegment(plain) {
			return nil, ErrPath
		}
	}
	u := *t.base
	joined := strings.TrimSuffix(t.base.EscapedPath(), "/") + "/" + strings.TrimPrefix(escapedPath, "/")
	path, err := url.PathUnescape(joined)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	u.Path, u.RawPath, u.RawQuery = path, joined, rawQuery
	return &u, nil
}

// hasDotSegment looks into an unescaped segment, which may itself hold slashes.
func hasDotSegment(segment string) bool {
	for part := range strings.SplitSeq(strings.ReplaceAll(segment, `\`, "/"), "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
