package remote

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

type localGateway struct{ bodies []string }

func (g *localGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	g.bodies = append(g.bodies, string(body))
	w.WriteHeader(http.StatusCreated)
}

func (*localGateway) ServeClusterProxy(http.ResponseWriter, *http.Request, string, string) {}

// A write that waits for a leader is served here, whole, once this gateway leads;
// its own address, which the Lease names before that, is never dialed.
func TestWriteWaitsForPromotion(t *testing.T) {
	for name, c := range map[string]struct {
		leader string
		after  time.Duration
		code   int
	}{
		"being promoted":     {leader: "127.0.0.1:1", after: 3 * time.Second, code: http.StatusCreated},
		"elected later":      {after: 9 * time.Second, code: http.StatusCreated},
		"nobody is promoted": {after: time.Hour, code: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, leads := &localGateway{}, atomic.Bool{}
				f := NewForwarder(Forwarder{
					Local: local, Own: "127.0.0.1:1", Leader: func() string { return c.leader },
					Leads: func() error {
						if leads.Load() {
							return nil
						}
						return errors.New("another one leads")
					},
				}, tls.Certificate{}, nil)
				promotion := time.AfterFunc(c.after, func() { leads.Store(true) })
				defer promotion.Stop()
				info := &request.RequestInfo{IsResourceRequest: true, Verb: "create", APIVersion: "v1", Resource: "pods", Namespace: "d"}
				ctx := request.WithRequestInfo(request.WithUser(t.Context(), &user.DefaultInfo{Name: "bob"}), info)
				w := httptest.NewRecorder()
				f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/d/pods", strings.NewReader(`{"kind":"Pod"}`)).WithContext(ctx))
				if served := strings.Join(local.bodies, ","); w.Code != c.code || (served == `{"kind":"Pod"}`) != (c.code == http.StatusCreated) {
					t.Errorf("code %d %s, served here: %q", w.Code, w.Body, served)
				}
			})
		})
	}
}
