package security

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// dialEndpoint opens a connection over which a test writes what it likes.
func dialEndpoint(t *testing.T, token string) (net.Conn, string) {
	t.Helper()
	config, err := rest.TLSConfigFor(withToken(t, token))
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	dialer := &tls.Dialer{Config: config}
	conn, err := dialer.DialContext(t.Context(), "tcp", world.System.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("close: %v", err) // the endpoint may have been first
		}
	})
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn, "Host: " + world.System.Address() + "\r\nAuthorization: Bearer " + token + "\r\n"
}

// What a client hides in a request arrives at no member as a request of its
// own: every request there has been authenticated and authorized here.
func TestSmuggledRequests(t *testing.T) {
	admin := world.System.Kubeconfig()
	ns := labtest.Namespace(t, admin)
	labtest.MustKubectl(t, admin, strings.ReplaceAll(memberRole, "NS", ns), "-n", ns, "apply", "-f", "-")
	runIn(t, ns, "web", "m2")
	token := world.issuer.token("dora", time.Hour, "team/a b")
	labtest.Eventually(t, cacheTime, func(ctx context.Context) error {
		if code := askAs(ctx, t, token, "/api/v1/namespaces/"+ns+"/pods/web"); code != http.StatusOK {
			return failed("the role does not act yet")
		}
		return nil
	})
	pod := "/api/v1/namespaces/" + ns + "/pods/web"
	const hidden = "DELETE /api/v1/namespaces/kube-system/pods/stowaway HTTP/1.1\r\nHost: m\r\n\r\n"
	for name, request := range map[string]string{
		"two lengths":                   "POST " + pod + "/eviction HTTP/1.1\r\nHEADContent-Length: 0\r\nContent-Length: 75\r\n\r\n" + hidden,
		"a length and chunks":           "POST " + pod + "/eviction HTTP/1.1\r\nHEADContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunks, oddly spelt":           "POST " + pod + "/eviction HTTP/1.1\r\nHEADContent-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunks, twice":                 "POST " + pod + "/eviction HTTP/1.1\r\nHEADTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"a blank before the colon":      "POST " + pod + "/eviction HTTP/1.1\r\nHEADContent-Length : 75\r\n\r\n" + hidden,
		"a folded header":               "GET " + pod + "/log HTTP/1.1\r\nHEADX-A: b\r\n Content-Length: 75\r\n\r\n" + hidden,
		"a line break in the path":      "GET " + pod + "/log?tailLines=1\r\nX: y HTTP/1.1\r\nHEAD\r\n" + hidden,
		"an escaped break in the path":  "GET " + pod + "/proxy/%0d%0aDELETE%20/api/v1/namespaces/kube-system/pods/stowaway%20HTTP/1.1%0d%0a HTTP/1.1\r\nHEAD\r\n",
		"an escaped break in the query": "GET " + pod + "/log?container=c%0d%0aDELETE%20/stowaway%20HTTP/1.1%0d%0a&tailLines=1 HTTP/1.1\r\nHEAD\r\n",
		"dots in the path":              "GET " + pod + "/proxy/../../../../../../api/v1/namespaces/kube-system/pods/stowaway HTTP/1.1\r\nHEAD\r\n",
		"escaped dots":                  "GET " + pod + "/proxy/%2e%2e/%2e%2e/%2e%2e/stowaway HTTP/1.1\r\nHEAD\r\n",
		"escaped dots and slashes":      "GET " + pod + "/proxy/..%2f..%2f..%2fstowaway HTTP/1.1\r\nHEAD\r\n",
		"twice escaped dots":            "GET " + pod + "/proxy/%252e%252e/%252e%252e/stowaway HTTP/1.1\r\nHEAD\r\n",
		"an absolute address":           "GET https://" + world.impostor.server.Listener.Addr().String() + "/stowaway HTTP/1.1\r\nHEAD\r\n",
		"a refused upgrade":             "GET " + pod + "/exec?command=true&container=none HTTP/1.1\r\nHEADConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" + hidden,
		"an upgrade to HTTP/2":          "GET " + pod + "/exec?command=true&container=c HTTP/1.1\r\nHEADConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + hidden,
		"an upgrade of a write":         "POST " + pod + "/eviction HTTP/1.1\r\nHEADConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a connection through":          "CONNECT " + world.impostor.server.Listener.Addr().String() + " HTTP/1.1\r\nHEAD\r\n" + hidden,
		"an expectation":                "POST " + pod + "/eviction HTTP/1.1\r\nHEADExpect: 100-continue\r\nContent-Length: 3\r\n\r\n{}\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) {
			conn, head := dialEndpoint(t, token)
			if _, err := io.WriteString(conn, strings.Replace(request, "HEAD", head, 1)); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			for n := 0; ; n++ {
				resp, err := http.ReadResponse(reader, nil)
				if err != nil {
					if n == 0 {
						t.Errorf("no answer: %v", err)
					}
					break
				}
				if resp.StatusCode < 300 && n > 0 {
					t.Errorf("the answer %d says %s", n+1, resp.Status)
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil {
					break
				}
				if resp.Close || n > 2 {
					break
				}
				// What is hidden would be answered at once.
				if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
					break
				}
			}
		})
	}
	for _, r := range world.impostor.requests("stowaway") {
		if !strings.Contains(r.URL.Path, "/pods/web/") {
			t.Errorf("the member was asked %s %s", r.Method, r.URL)
		}
	}
	for _, a := range labtest.WholeAudit(world.Member("m2")).Read(t) {
		if strings.Contains(a.RequestURI, "stowaway") && !strings.Contains(a.RequestURI, "/pods/web/") {
			t.Errorf("the member was asked %s %s by %s", a.Verb, a.RequestURI, a.User.Username)
		}
	}
	if res := labtest.Kubectl(t, admin, "", "-n", ns, "get", "pod", "web"); res.Code != 0 {
		t.Errorf("the Pod: %s", res.Err)
	}
}

// A member is sent what the request says and nothing that belongs to the client.
func TestHeadersOfClients(t *testing.T) {
	admin := world.System.Kubeconfig()
	ns := labtest.Namespace(t, admin)
	runIn(t, ns, "web", "m2")
	config := labtest.Config(t, world.System)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no such headers
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/namespaces/" + ns + "/pods/web/log", "/apis/cluster.karmada.io/v1alpha1/clusters/m2/proxy/api/v1/namespaces/" + ns + "/pods/web"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		secret := "header-secret-of-a-client"
		for _, key := range []string{"Cookie", "Proxy-Authorization", "X-Forwarded-User", "X-Forwarded-Access-Token", "Keep-Alive", "Te", "Forwarded", "X-Named", "Idempotency-Key"} {
			r.Header.Set(key, secret)
		}
		r.Header.Set("Connection", "X-Named")
		r.Header.Set("Te", "trailers")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v", path, resp.Status, err)
		}
		seen := world.impostor.requests("/" + ns + "/pods/web")
		if len(seen) == 0 {
			t.Fatalf("%s did not reach the member", path)
		}
		for _, s := range seen {
			for key, values := range s.Header {
				if strings.Contains(strings.Join(values, ","), secret) {
					t.Errorf("the member was sent %s: %q", key, values)
				}
			}
		}
	}
}
