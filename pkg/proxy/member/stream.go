package member

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// Forward describes a request that is copied as it comes.
type Forward struct {
	Path     string // escaped, in the member
	RawQuery string
	// User is impersonated; nil speaks as the member's own identity.
	User user.Info
	// A redirect of the member to below Root reaches the client as one to
	// below Served; any other redirect is refused. An empty Served refuses
	// all. Both are escaped and without a slash at the end.
	Root, Served string
	// Fail answers the client with an error: an *UnreachableError, or one
	// of the sentinels of this package.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Stream carries a request and its answer without holding either, and an
// upgrade to SPDY/3.1 or websocket with everything after it.
func (t *Transport) Stream(w http.ResponseWriter, r *http.Request, f Forward) {
	target, err := t.URL(f.Path, f.RawQuery)
	if err != nil {
		f.Fail(w, r, err)
		return
	}
	header := CleanHeaders(r.Header)
	token, upgrade, err := upgradeToken(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		f.Fail(w, r, err)
		return
	}
	if f.User != nil {
		if err := Impersonate(header, f.User); err != nil {
			f.Fail(w, r, err)
			return
		}
	}
	if err := t.ready(r.Context(), upgrade); err != nil {
		if upgrade {
			w.Header().Set("Connection", "close")
		}
		f.Fail(w, r, err)
		return
	}
	out := r.WithContext(r.Context())
	out.Header = header
	if upgrade {
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", token)
		t.streamUpgrade(w, out, target, f)
		return
	}
	t.streamPlain(w, out, target, f)
}

// ready asks before an upgrade whether the member lives: its connection is
// dialed anew, and a frozen one takes it and says nothing.
func (t *Transport) ready(ctx context.Context, upgrade bool) error {
	if !upgrade || t.silent() {
		return t.unlessSilent(ctx)
	}
	return t.answers(ctx, t.probe)
}

// upgradeToken finds the protocol that a client wants to switch to. An Upgrade
// header that Connection does not name asks for nothing.
func upgradeToken(r *http.Request) (token string, upgrade bool, err error) {
	if !httpstream.IsUpgradeRequest(r) {
		return "", false, nil
	}
	values := r.Header.Values("Upgrade")
	if len(values) == 1 {
		switch v := strings.ToLower(strings.TrimSpace(values[0])); v {
		case "websocket":
			return "websocket", true, nil
		case "spdy/3.1":
			return "SPDY/3.1", true, nil
		}
	}
	return "", false, ErrUpgradeToken
}

// responder turns the proxy's errors into answers.
type responder struct {
	t    *Transport
	fail func(w http.ResponseWriter, r *http.Request, err error)
}

func (e responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	e.fail(w, r, e.t.gone(true, err))
}

func (t *Transport) streamUpgrade(w http.ResponseWriter, r *http.Request, target *url.URL, f Forward) {
	g := &guard{wait: answerWait}
	ctx, cancel := context.WithCancel(withGuard(r.Context(), g))
	defer cancel()
	stop := context.AfterFunc(ctx, g.end)
	defer stop()
	go endOnShutdown(ctx, g.end)
	// A refused upgrade leaves nothing of the connection behind.
	w.Header().Set("Connection", "close")
	h := utilproxy.NewUpgradeAwareHandler(target, t.rt, false, true, responder{t, f.Fail})
	h.UpgradeTransport = t.upgrade
	h.UseLocationHost = true
	h.ServeHTTP(acceptOnHijack{w, g, func(w http.ResponseWriter) {
		f.Fail(w, r, &UnreachableError{Cluster: t.name, Err: ErrCredentials})
	}}, r.WithContext(ctx))
}

// endOnShutdown ends a stream that has no end of its own when the server is
// told to stop.
func endOnShutdown(ctx context.Context, end func()) {
	signal := request.ServerShutdownSignalFrom(ctx)
	if signal == nil {
		return
	}
	select {
	case <-signal.ShuttingDown():
		end()
	case <-ctx.Done():
	}
}

func (t *Transport) streamPlain(w http.ResponseWriter, r *http.Request, target *url.URL, f Forward) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go endOnShutdown(ctx, cancel)
	sent := new(atomic.Bool)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = target
			p.Out.Host = target.Host
			p.SetXForwarded()
		},
		Transport:      roundTripperFunc(func(r *http.Request) (*http.Response, error) { return t.roundTrip(withoutInterim(r, sent)) }),
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error { return t.checkAnswer(resp, f) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil && !errors.Is(err, ErrFrozen) {
				return
			}
			if _, ok := errors.AsType[*UnreachableError](err); !ok {
				err = t.gone(sent.Load(), err)
			}
			f.Fail(w, r, err)
		},
	}
	defer t.recoverAbort(r.Context())
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// recoverAbort lets an answer that broke off end as one: http.ErrAbortHandler
// must reach the server, so that the client does not take it for a whole one.
func (t *Transport) recoverAbort(ctx context.Context) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		klog.FromContext(ctx).V(4).Info("Answer of member broke off", "cluster", string(t.name))
	}
	panic(p)
}

// withoutInterim drops what would hand interim answers (1xx) of a member to the
// client: they would pass for the answer in the audit event and for the time
// limit, and take the headers away that were set before.
func withoutInterim(r *http.Request, sent *atomic.Bool) *http.Request {
	ctx := httptrace.WithClientTrace(untraced{r.Context()}, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	return r.WithContext(ctx) //nolint:contextcheck // it wraps the request's own
}

// untraced hides the hooks that were put into a context so far.
type untraced struct{ context.Context }

func (c untraced) Value(key any) any {
	value := c.Context.Value(key)
	if _, trace := value.(*httptrace.ClientTrace); trace {
		return nil
	}
	return value
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// checkAnswer runs before anything of a member's answer reaches the client.
func (t *Transport) checkAnswer(resp *http.Response, f Forward) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &UnreachableError{Cluster: t.name, Sent: true, Err: ErrSwitched}
	}
	if err := refused(resp); err != nil {
		if !errors.Is(err, ErrRedirect) {
			return &UnreachableError{Cluster: t.name, Err: err}
		}
		location, ok := mapRedirect(resp.Header.Get("Location"), t.base.EscapedPath(), f.Root, f.Served)
		if !ok {
			return &UnreachableError{Cluster: t.name, Sent: true, Err: err}
		}
		resp.Header.Set("Location", location)
	}
	CleanAnswer(resp.Header)
	return nil
}

// mapRedirect translates a redirect that stays below root. Locations on other hosts, and relative ones, are not followed up.
func mapRedirect(location, base, root, served string) (string, bool) {
	if served == "" || location == "" || strings.Contains(location, `\`) {
		return "", false
	}
	u, err := url.Parse(location)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" || u.User != nil {
		return "", false
	}
	to := u.EscapedPath()
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
		return "", false
	}
	to = strings.TrimPrefix(to, strings.TrimSuffix(base, "/"))
	rest, ok := strings.CutPrefix(to, root)
	if !ok || (rest != "" && !strings.HasPrefix(rest, "/")) {
		return "", false
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if plain, err := url.PathUnescape(segment); err != nil || hasDotSegment(plain) {
			return "", false
		}
	}
	to = served + rest
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	if u.Fragment != "" {
		to += "#" + u.EscapedFragment()
	}
	return to, true
}

// SetPatience sets the times after which a silent member is given up; tests
// shorten them.
func (t *Transport) SetPatience(patience, probe, answer time.Duration) {
	t.patience, t.probe, t.answerLimit = patience, probe, answer
}
