package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

type loopbackKey struct{}

// IsLoopback says whether the request came from a client of the embedded chain
// itself, or from a gateway: such a request bypasses the router.
func IsLoopback(ctx context.Context) bool {
	marked, _ := ctx.Value(loopbackKey{}).(bool)
	return marked
}

// FleetHeader on a request of a private client asks for what every other client
// sees, instead of the control plane alone. Nobody else gains anything by it.
const FleetHeader = "Isthmus-Fleet"

// FleetConfig makes of a private client's configuration one that sees what
// every client of the endpoint sees.
func FleetConfig(private *rest.Config) *rest.Config {
	config := rest.CopyConfig(private)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return asFleet{next} })
	return config
}

type asFleet struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t asFleet) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(FleetHeader, "true")
	return t.next.RoundTrip(r)
}

// MarkLoopback marks requests of private clients before authentication takes
// the credential away. A private client is recognised by the loopback bearer
// token, or by a certificate of the gateway authority; never by its user name,
// which can be impersonated. A gateway's request is given the loopback token,
// so that the chain authenticates it as the loopback user and honours the
// impersonation headers that the gateway sets.
func MarkLoopback(next http.Handler, loopbackToken string, gatewayCA *x509.CertPool) http.Handler {
	want := sha256.Sum256([]byte(loopbackToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hasToken(r, want) && r.Header.Get(FleetHeader) != "":
			r.Header.Del(FleetHeader)
		case hasToken(r, want):
			r = r.WithContext(context.WithValue(r.Context(), loopbackKey{}, true))
		case isGateway(r, gatewayCA):
			r = r.Clone(context.WithValue(r.Context(), loopbackKey{}, true))
			r.Header.Set("Authorization", "Bearer "+loopbackToken)
			r.TLS = nil
		}
		next.ServeHTTP(w, r)
	})
}

func hasToken(r *http.Request, want [sha256.Size]byte) bool {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return false
	}
	got := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

func isGateway(r *http.Request, authority *x509.CertPool) bool {
	if authority == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	intermediates := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots:         authority,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}
