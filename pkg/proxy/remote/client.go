// Package remote joins multicluster-apiserver and a cluster-gateway process:
// a routed request is forwarded as it is, over mutual TLS, with the user in
// front-proxy headers.
//
//	router -> Client (strips and sets identity headers) -> TLS -> Server
//	       -> user and RequestInfo into the context -> gateway handler
//
// The authority that signs both sides is private to the two programs.
package remote

import (
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
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Identity headers, as front proxies of Kubernetes set them.
const (
	userHeader  = "X-Remote-User"
	uidHeader   = "X-Remote-Uid"
	groupHeader = "X-Remote-Group"
	extraPrefix = "X-Remote-Extra-"
)

// serverName is what a gateway's certificate is checked against, whatever
// address it was reached by.
const serverName = "localhost"

const (
	dialTimeout      = 2 * time.Second
	handshakeTimeout = 5 * time.Second
)

// Client forwards requests to one of several gateway addresses.
type Client struct {
	proxy *httputil.ReverseProxy
	pool  *pool
}

// NewClient makes a client of the gateways at the given host:port addresses. The
// first that is well has all requests.
func NewClient(addresses []string, certificate tls.Certificate, authority *x509.CertPool) (*Client, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no gateway address")
	}
	for _, a := range addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("gateway address %q must be host:port: %w", a, err)
		}
	}
	pool := newPool(addresses, func() *http.Transport { return newTransport(certificate, authority) })
	target := &url.URL{Scheme: "https", Host: "cluster-gateway"}
	return &Client{pool: pool, proxy: &httputil.ReverseProxy{
		Transport:     pool,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Host = p.In.Host
			setIdentity(p.Out)
		},
		ModifyResponse: releaseSeat,
		ErrorHandler:   refuse,
	}}, nil
}

// Run watches over the gateways until ctx ends, so that requests go to one that
// answers.
func (c *Client) Run(ctx context.Context) { c.pool.run(ctx) }

func newTransport(certificate tls.Certificate, authority *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: authority, ServerName: serverName, MinVersion: tls.VersionTLS13},
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		// Upgrades need HTTP/1.1; the gateway is one hop away, so that a
		// connection for each long request costs little.
		ForceAttemptHTTP2:  false,
		DisableCompression: true,
	}
}

// ServeHTTP implements proxy.Gateway.
func (c *Client) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.proxy.ServeHTTP(w, r) }

// ServeClusterProxy implements proxy.Gateway; the gateway decides by the path again.
func (c *Client) ServeClusterProxy(w http.ResponseWriter, r *http.Request, _, _ string) {
	c.proxy.ServeHTTP(w, r)
}

// releaseSeat gives the priority-and-fairness seat of a watch back once the
// gateway streams: the initial events cost the gateway, not this process.
func releaseSeat(answer *http.Response) error {
	ctx := answer.Request.Context()
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb == "watch" && answer.StatusCode == http.StatusOK {
		utilflowcontrol.WatchInitialized(ctx)
		answer.Body = cleanEnd{answer.Body}
	}
	return nil
}

// cleanEnd ends a watch whose gateway has died as every watch ends, so that a
// client resumes it instead of listing again.
type cleanEnd struct{ io.ReadCloser }

func (b cleanEnd) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// setIdentity replaces whatever identity the client has sent by the user that
// the chain has established.
func setIdentity(out *http.Request) {
	for name := range out.Header {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") {
			out.Header.Del(name)
		}
	}
	out.Header.Del("Authorization")
	u, ok := request.UserFrom(out.Context())
	if !ok {
		return
	}
	out.Header.Set(userHeader, u.GetName())
	if uid := u.GetUID(); uid != "" {
		out.Header.Set(uidHeader, uid)
	}
	for _, g := range u.GetGroups() {
		out.Header.Add(groupHeader, g)
	}
	for key, values := range u.GetExtra() {
		for _, v := range values {
			out.Header.Add(extraPrefix+url.PathEscape(key), v)
		}
	}
}

// retrySoon goes with refusals of what was sent to nobody.
var retrySoon = &metav1.StatusDetails{RetryAfterSeconds: 1}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	klog.FromContext(r.Context()).Error(err, "No gateway answers", "path", r.URL.Path)
	status := apierrors.NewServiceUnavailable("no cluster-gateway answers: " + err.Error())
	if neverSent(err) {
		status.ErrStatus.Details = retrySoon
	}
	responsewriters.ErrorNegotiated(status, legacyscheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// userFrom reads the user that a Client has set.
func userFrom(h http.Header) (user.Info, error) {
	name := h.Get(userHeader)
	if name == "" {
		return nil, errors.New("request without a user")
	}
	info := &user.DefaultInfo{Name: name, UID: h.Get(uidHeader), Groups: h.Values(groupHeader)}
	for key, values := range h {
		escaped, found := strings.CutPrefix(key, extraPrefix)
		if !found {
			continue
		}
		plain, err := url.PathUnescape(strings.ToLower(escaped))
		if err != nil {
			return nil, fmt.Errorf("extra field %q of the user: %w", key, err)
		}
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[plain] = values
	}
	return info, nil
}
