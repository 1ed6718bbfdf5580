package remote

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// Handler is the server's side: it takes the user and the RequestInfo from a
// forwarded request and hands it to the gateway. stopping is closed when the
// process begins to stop, so that watches end.
func Handler(kinds *proxy.Kinds, gateway proxy.Gateway, stopping <-chan struct{}) http.Handler {
	resolver := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	signal := shutdownSignal(stopping)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := userFrom(r.Header)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), who)
		ctx = request.WithServerShutdownSignal(ctx, signal)
		ctx = request.WithReceivedTimestamp(ctx, time.Now())
		r = r.WithContext(ctx)
		if to := proxy.Decide(info, kinds, false); to.Target == proxy.ToCluster {
			gateway.ServeClusterProxy(w, r, to.Cluster, to.Path)
			return
		}
		gateway.ServeHTTP(w, r)
	})
}

// TLSConfig accepts only clients of the gateway authority.
func TLSConfig(certificate tls.Certificate, authority *x509.CertPool) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientCAs:    authority,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}
}

type shutdownSignal <-chan struct{}

// ShuttingDown implements request.ServerShutdownSignal.
func (s shutdownSignal) ShuttingDown() <-chan struct{} { return s }
