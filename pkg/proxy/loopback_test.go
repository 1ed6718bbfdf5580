package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
)

func TestMarkLoopback(t *testing.T) {
	files, err := pki.Ensure(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := cert.NewPool(files.Cert(pki.GatewayCA))
	if err != nil {
		t.Fatal(err)
	}
	peer := func(name string) *tls.ConnectionState {
		certs, err := cert.CertsFromFile(files.Cert(name))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.ConnectionState{PeerCertificates: certs}
	}
	tests := []struct {
		name          string
		authorization string
		tls           *tls.ConnectionState
		fleet         bool
		want          bool
		wantAuth      string
	}{
		{name: "nothing"},
		{name: "loopback token", authorization: "Bearer secret", want: true, wantAuth: "Bearer secret"},
		{name: "loopback token that asks for the fleet", authorization: "Bearer secret", fleet: true, wantAuth: "Bearer secret"},
		{name: "another token", authorization: "Bearer secreT", wantAuth: "Bearer secreT"},
		{name: "empty token", authorization: "Bearer ", wantAuth: "Bearer "},
		{name: "token without scheme", authorization: "secret", wantAuth: "secret"},
		{name: "gateway certificate", tls: peer(pki.GatewayClient), want: true, wantAuth: "Bearer secret"},
		{name: "gateway's serving certificate is no client", tls: peer(pki.GatewayServer)},
		{name: "administrator's certificate", tls: peer(pki.Admin)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var marked bool
			var authorization string
			h := MarkLoopback(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				marked, authorization = IsLoopback(r.Context()), r.Header.Get("Authorization")
			}), "secret", authority)
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
			r.Header.Set("Impersonate-User", "system:apiserver")
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			r.TLS = tt.tls
			if tt.fleet {
				r.Header.Set(FleetHeader, "true")
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if marked != tt.want || authorization != tt.wantAuth {
				t.Errorf("marked = %v with %q, want %v with %q", marked, authorization, tt.want, tt.wantAuth)
			}
		})
	}
}

func TestMarkLoopbackWithoutAuthority(t *testing.T) {
	h := MarkLoopback(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if IsLoopback(r.Context()) {
			t.Error("a certificate was accepted without an authority")
		}
	}), "secret", nil)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	h.ServeHTTP(httptest.NewRecorder(), r)
}
