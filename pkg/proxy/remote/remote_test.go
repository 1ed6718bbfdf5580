package remote

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/cert"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

type hop struct {
	files  pki.Files
	server *httptest.Server
	client *Client
}

func newHop(t *testing.T, gateway http.Handler) *hop {
	t.Helper()
	files, err := pki.Ensure(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &hop{files: files}
	h.server = httptest.NewUnstartedServer(gateway)
	h.server.TLS = TLSConfig(h.pair(t, pki.GatewayServer), h.pool(t, pki.GatewayCA))
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	h.client, err = NewClient([]string{h.server.Listener.Addr().String()}, h.pair(t, pki.GatewayClient), h.pool(t, pki.GatewayCA))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hop) pair(t *testing.T, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(h.files.Cert(name), h.files.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (h *hop) pool(t *testing.T, name string) *x509.CertPool {
	t.Helper()
	pool, err := cert.NewPool(h.files.Cert(name))
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

type gatewayFunc func(w http.ResponseWriter, r *http.Request)

func (f gatewayFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }

func (f gatewayFunc) ServeClusterProxy(w http.ResponseWriter, _ *http.Request, cluster, path string) {
	_, _ = io.WriteString(w, cluster+" "+path)
}

// ask sends a request through the hop as the given user.
func (h *hop) ask(who user.Info, path string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	ctx := request.WithUser(r.Context(), who)
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Verb: "watch", IsResourceRequest: true})
	answer := httptest.NewRecorder()
	h.client.ServeHTTP(answer, r.WithContext(ctx))
	return answer
}

func TestUserCrossesTheHop(t *testing.T) {
	var got user.Info
	kinds := proxy.NewKinds(proxy.DefaultClasses())
	h := newHop(t, Handler(kinds, gatewayFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = request.UserFrom(r.Context())
		if info, _ := request.RequestInfoFrom(r.Context()); info.Resource != "pods" || info.Namespace != "d" {
			t.Errorf("RequestInfo is %+v", info)
		}
		for _, name := range []string{"Authorization", "Impersonate-User"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the client's %s crossed the hop", name)
			}
		}
	}), nil))
	alice := &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"a b", "oidc:x"}, Extra: map[string][]string{"example.com/scope": {"1", "2"}}}
	answer := h.ask(alice, "/api/v1/namespaces/d/pods", http.Header{
		"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Evil": {"1"},
		"Authorization": {"Bearer secret"}, "Impersonate-User": {"root"},
	})
	if answer.Code != http.StatusOK || !reflect.DeepEqual(got, user.Info(alice)) {
		t.Errorf("status %d, user %+v, want %+v", answer.Code, got, alice)
	}
}

func TestClusterProxyCrossesTheHop(t *testing.T) {
	h := newHop(t, Handler(proxy.NewKinds(nil), gatewayFunc(nil), nil))
	answer := h.ask(&user.DefaultInfo{Name: "a"}, "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/pods", nil)
	if answer.Body.String() != "m1 /api/v1/pods" {
		t.Errorf("got %q", answer.Body)
	}
}

func TestOnlyTheEndpointMayAsk(t *testing.T) {
	h := newHop(t, gatewayFunc(func(http.ResponseWriter, *http.Request) { t.Error("a stranger was served") }))
	for _, name := range []string{pki.Admin, pki.FrontProxyClient, pki.GatewayServer} {
		stranger, err := NewClient([]string{h.server.Listener.Addr().String()}, h.pair(t, name), h.pool(t, pki.GatewayCA))
		if err != nil {
			t.Fatal(err)
		}
		answer := (&hop{client: stranger}).ask(&user.DefaultInfo{Name: "a"}, "/api/v1/pods", nil)
		if answer.Code != http.StatusServiceUnavailable {
			t.Errorf("certificate %s: %d %s", name, answer.Code, answer.Body)
		}
	}
}

func TestWatchEndsCleanlyWhenTheGatewayDies(t *testing.T) {
	h := newHop(t, gatewayFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "event\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	}))
	answer := h.ask(&user.DefaultInfo{Name: "a"}, "/api/v1/pods?watch=1", nil)
	if answer.Code != http.StatusOK || answer.Body.String() != "event\n" {
		t.Errorf("got %d %q", answer.Code, answer.Body)
	}
}

func TestNoGateway(t *testing.T) {
	h := newHop(t, gatewayFunc(nil))
	h.server.Close()
	if answer := h.ask(&user.DefaultInfo{Name: "a"}, "/api/v1/pods", nil); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d", answer.Code)
	}
	if _, err := NewClient([]string{"no-port"}, tls.Certificate{}, nil); err == nil {
		t.Error("an address without a port was taken")
	}
}
