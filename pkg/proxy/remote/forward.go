package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

const (
	// forwardedHeader marks what a replica has passed on, so that it is not
	// passed on again.
	forwardedHeader = "X-Isthmus-Forwarded"
	// leaderWait bounds how long a request waits for a replica that leads: a
	// takeover is shorter.
	leaderWait  = 15 * time.Second
	leaderRetry = 200 * time.Millisecond
	// peerWait bounds how long another gateway may take to answer.
	peerWait = 4 * time.Second
	// maxForwarded is above every limit of a request's body.
	maxForwarded = 4 << 20
)

var errNoLeader = errors.New("no gateway numbers the events at the moment")

// Forwarder passes on to the leading gateway what only that can do: whatever
// writes, since names are reserved and writes are awaited there, and reads that
// ask the members.
type Forwarder struct {
	Local proxy.Gateway
	// Leads answers nil while this process numbers the events.
	Leads func() error
	// Leader is the address of the gateway that does, empty where none does.
	Leader func() string
	// Own is the address at which this process is such a gateway.
	Own string

	proxy *httputil.ReverseProxy
}

// NewForwarder makes a forwarder that shows the certificate of an endpoint.
func NewForwarder(f Forwarder, certificate tls.Certificate, authority *x509.CertPool) *Forwarder {
	leads := &leadingTransport{leads: f.Leads, leader: f.Leader, own: f.Own, next: newTransport(certificate, authority)}
	f.proxy = &httputil.ReverseProxy{
		Transport:     leads,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "https", Host: "cluster-gateway"})
			p.Out.Host = p.In.Host
			setIdentity(p.Out)
			p.Out.Header.Set(forwardedHeader, "true")
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if again, ok := r.Context().Value(localKey{}).(func()); ok && errors.Is(err, errLeadsNow) {
				again()
				return
			}
			refuse(w, r, err)
		},
	}
	return &f
}

// NewPeerClient makes a client of other gateways.
func NewPeerClient(certificate tls.Certificate, authority *x509.CertPool) *http.Client {
	transport := newTransport(certificate, authority)
	transport.ResponseHeaderTimeout = peerWait
	return &http.Client{Transport: transport}
}

// local are the subresources that every gateway serves: they take the connection
// over, or copy it without an end.
var local = map[string]bool{"log": true, "exec": true, "attach": true, "portforward": true, "proxy": true}

// needsLeader says what only the leading gateway can do.
func needsLeader(info *request.RequestInfo, query url.Values) bool {
	if info == nil || !info.IsResourceRequest || local[info.Subresource] {
		return false
	}
	switch info.Verb {
	case "get", "list", "watch":
		return query.Get("consistency") == "strict"
	}
	return true
}

// ServeHTTP implements proxy.Gateway.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, _ := request.RequestInfoFrom(r.Context())
	if !needsLeader(info, r.URL.Query()) || f.Leads() == nil {
		f.Local.ServeHTTP(w, r)
		return
	}
	if r.Header.Get(forwardedHeader) != "" {
		w.Header().Set(proxy.NotLeadingHeader, "true")
		notNow(w, r, f.Leads())
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForwarded))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = apierrors.NewRequestEntityTooLargeError(err.Error())
		} else {
			err = apierrors.NewBadRequest(err.Error())
		}
		responsewriters.ErrorNegotiated(err, legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
		return
	}
	again := r.Clone(r.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r = r.Clone(context.WithValue(r.Context(), localKey{}, func() { f.Local.ServeHTTP(w, again) }))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	f.proxy.ServeHTTP(w, r)
}

// localKey is where a forwarded request has the way to serve it here.
type localKey struct{}

// errLeadsNow: this process has begun to lead while a request waited.
var errLeadsNow = errors.New("this gateway numbers the events now")

// ServeClusterProxy implements proxy.Gateway.
func (f *Forwarder) ServeClusterProxy(w http.ResponseWriter, r *http.Request, cluster, path string) {
	f.Local.ServeClusterProxy(w, r, cluster, path)
}

// leadingTransport reaches whoever leads, and waits for somebody to do. A request
// is sent again only where it surely did nothing.
type leadingTransport struct {
	leads  func() error
	leader func() string
	own    string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *leadingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), leaderWait)
	defer cancel()
	why := errNoLeader
	for {
		if t.leads() == nil {
			return nil, &notSentError{errLeadsNow}
		}
		// What comes from here goes nowhere else while this process takes over.
		if address := t.leader(); address != "" && address != t.own {
			resp, err := t.try(r, address)
			if err == nil && resp.Header.Get(proxy.NotLeadingHeader) == "" {
				return resp, nil
			}
			if err != nil && !neverSent(err) {
				return nil, err
			}
			if err == nil {
				why = fmt.Errorf("gateway %s answers %s", address, resp.Status)
				if err := resp.Body.Close(); err != nil {
					return nil, err
				}
			} else {
				why = err
			}
		}
		select {
		case <-ctx.Done():
			return nil, &notSentError{why}
		case <-time.After(leaderRetry):
		}
	}
}

func (t *leadingTransport) try(r *http.Request, address string) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Host = address
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	return t.next.RoundTrip(out)
}

// notSentError is why a request was given up before anybody had it.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// neverSent says that a request surely did nothing.
func neverSent(err error) bool {
	if _, ok := errors.AsType[*notSentError](err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// notNow refuses what may be sent again.
func notNow(w http.ResponseWriter, r *http.Request, err error) {
	status := apierrors.NewServiceUnavailable("no cluster-gateway takes this now: " + err.Error())
	status.ErrStatus.Details = retrySoon
	responsewriters.ErrorNegotiated(status, legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}
