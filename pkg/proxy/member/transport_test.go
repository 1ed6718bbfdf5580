package member

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// newMember runs a member with TLS and HTTP/2.
func newMember(t *testing.T, h http.HandlerFunc) (*httptest.Server, *rest.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s, &rest.Config{
		Host: s.URL, BearerToken: "member-token",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
}

func newTransport(t *testing.T, config *rest.Config) *Transport {
	t.Helper()
	tr, err := New("m1", config)
	if err != nil {
		t.Fatal(err)
	}
	tr.SetPatience(100*time.Millisecond, 100*time.Millisecond, 2*time.Second)
	t.Cleanup(tr.Close)
	return tr
}

func get(path string) Request { return Request{Method: http.MethodGet, Path: path} }

func TestDoSendsOurIdentityOnly(t *testing.T) {
	var seen http.Header
	var proto string
	_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		seen, proto = r.Header.Clone(), r.Proto
		w.Header().Set("Audit-Id", "member")
		io.WriteString(w, `{}`)
	})
	tr := newTransport(t, config)
	client := http.Header{"Authorization": {"Bearer client"}, "Impersonate-User": {"root"}, "Connection": {"Impersonate-Group"}, "User-Agent": {"kubectl"}}
	resp, err := tr.Do(t.Context(), Request{
		Method: http.MethodPost, Path: "/api/v1/pods", Header: CleanHeaders(client), Body: []byte("{}"),
		User: &user.DefaultInfo{Name: "alice", Groups: []string{"devs"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"Authorization": "Bearer member-token", "Impersonate-User": "alice", "Impersonate-Group": "devs", "User-Agent": "kubectl",
	} {
		if got := seen.Values(key); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if proto != "HTTP/2.0" {
		t.Errorf("spoke %s", proto)
	}
	if resp.Header.Get("Audit-Id") != "" {
		t.Error("the member's Audit-Id reached the client")
	}
}

func TestDoRefusesAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    error
		sent    bool
	}{
		"redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, ErrRedirect, false},
		"credentials": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, ErrCredentials, false},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			for {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, ErrTooLarge, true},
		"head only": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ErrTooLong, true},
		"breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
			panic(http.ErrAbortHandler)
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/x" { // and no probe of a member that is slow
					requests.Add(1)
				}
				tc.handler(w, r)
			})
			_, err := newTransport(t, config).Do(t.Context(), Request{Method: http.MethodPost, Path: "/x", Body: []byte("{}")})
			var gone *UnreachableError
			if !errors.As(err, &gone) || tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if gone.Sent != tc.sent || gone.Cluster != "m1" {
				t.Errorf("sent %t, cluster %q", gone.Sent, gone.Cluster)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("the member saw %d requests", n)
			}
		})
	}
}

func TestDoWaitsForTheLivingOnly(t *testing.T) {
	var alive atomic.Bool
	release := make(chan struct{})
	_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" && alive.Load() {
			w.WriteHeader(http.StatusForbidden) // any answer is a sign of life
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	tr := newTransport(t, config)
	start := time.Now()
	_, err := tr.Do(t.Context(), get("/frozen"))
	var gone *UnreachableError
	if !errors.Is(err, ErrFrozen) || !errors.As(err, &gone) || !gone.Sent {
		t.Fatalf("frozen: %v", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("frozen member held the caller for %s", d)
	}
	alive.Store(true)
	time.AfterFunc(500*time.Millisecond, func() { close(release) })
	if _, err := tr.Do(t.Context(), get("/slow")); err != nil {
		t.Errorf("slow: %v", err)
	}
}

func TestDoClientGone(t *testing.T) {
	_, config := newMember(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	tr := newTransport(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := tr.Do(ctx, get("/x"))
	var gone *UnreachableError
	if !errors.Is(err, context.Canceled) || errors.As(err, &gone) {
		t.Errorf("got %v", err)
	}
}

func TestDoNothingListens(t *testing.T) {
	s, config := newMember(t, func(http.ResponseWriter, *http.Request) {})
	s.Close()
	_, err := newTransport(t, config).Do(t.Context(), get("/x"))
	var gone *UnreachableError
	if !errors.As(err, &gone) || gone.Sent {
		t.Errorf("got %v: surely nothing was sent", err)
	}
}

// serveStream runs an endpoint whose every request streams to the transport.
func serveStream(t *testing.T, tr *Transport, f Forward) *httptest.Server {
	t.Helper()
	if f.Fail == nil {
		f.Fail = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := f
		f.Path, f.RawQuery = r.URL.EscapedPath(), r.URL.RawQuery
		tr.Stream(w, r, f)
	}))
	t.Cleanup(s.Close)
	return s
}

// raw sends bytes on a connection and returns a reader of what comes back.
func raw(t *testing.T, s *httptest.Server, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

const upgradeRequest = "GET /exec?command=x HTTP/1.1\r\nHost: e\r\nConnection: Upgrade, Impersonate-User\r\nUpgrade: websocket\r\nImpersonate-User: root\r\nAuthorization: Bearer client\r\n\r\n"

func TestUpgradeCarriesBytes(t *testing.T) {
	var seen http.Header
	_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := buf.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	})
	tr := newTransport(t, config)
	tr.heard() // it is not asked whether it lives
	s := serveStream(t, tr, Forward{User: &user.DefaultInfo{Name: "alice"}})
	conn, in := raw(t, s, upgradeRequest)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if got := seen.Get("Authorization"); got != "Bearer member-token" {
		t.Errorf("Authorization: %q", got)
	}
	if got := seen.Values("Impersonate-User"); len(got) != 1 || got[0] != "alice" {
		t.Errorf("Impersonate-User: %q", got)
	}
}

// A refused upgrade must leave no connection on which the client could go on
// with our credentials.
func TestRefusedUpgradeEndsTheConnection(t *testing.T) {
	for name, code := range map[string]int{"error": http.StatusForbidden, "success": http.StatusOK, "redirect": http.StatusFound, "credentials": http.StatusUnauthorized} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			_, config := newMember(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
				io.WriteString(w, "{}")
			})
			tr := newTransport(t, config)
			tr.heard() // it is not asked whether it lives
			s := serveStream(t, tr, Forward{})
			conn, in := raw(t, s, upgradeRequest+"GET /api/v1/secrets HTTP/1.1\r\nHost: m\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode < 400 || resp.StatusCode == http.StatusUnauthorized {
				t.Fatalf("%v %v", resp, err)
			}
			io.Copy(io.Discard, resp.Body)
			io.WriteString(conn, "GET /api/v1/secrets HTTP/1.1\r\nHost: m\r\n\r\n")
			if n, err := in.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes more came back", n)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("the member saw %d requests", n)
			}
		})
	}
}

func TestUpgradeTokens(t *testing.T) {
	for value, ok := range map[string]bool{"websocket": true, "WebSocket": true, "SPDY/3.1": true, "h2c": false, "TLS/1.0": false, "websocket, h2c": false, "": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {value}}
		_, upgrade, err := upgradeToken(r)
		if upgrade != ok || (err == nil) != ok {
			t.Errorf("%q: %t %v", value, upgrade, err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{"Upgrade": {"h2c"}}
	if _, upgrade, err := upgradeToken(r); upgrade || err != nil {
		t.Error("an Upgrade header alone asks for nothing")
	}
}

func TestFrozenUpgradeIsGivenUp(t *testing.T) {
	g := &guard{wait: 50 * time.Millisecond}
	client, server := net.Pipe()
	defer server.Close()
	conn, err := g.take(client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("read from a silent member")
	}
}

func TestGuardLimitsTheHead(t *testing.T) {
	g := &guard{wait: time.Second}
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		for {
			if _, err := server.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}()
	conn, err := g.take(client)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, errHeadTooLarge) || n > maxAnswerHeader {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := g.accept(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, conn, maxAnswerHeader*2); err != nil {
		t.Errorf("after the answer: %v", err)
	}
}

func TestStreamFlushes(t *testing.T) {
	next := make(chan struct{})
	_, config := newMember(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "second\n")
	})
	s := serveStream(t, newTransport(t, config), Forward{})
	resp, err := http.Get(s.URL + "/log?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	close(next)
	if line, _ := in.ReadString('\n'); line != "second\n" {
		t.Errorf("got %q", line)
	}
}

func TestStreamRefusals(t *testing.T) {
	location := "https://evil.example/"
	code := http.StatusFound
	_, config := newMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.Header().Set("Alt-Svc", `h3="evil.example:443"`)
		w.WriteHeader(code)
	})
	s := serveStream(t, newTransport(t, config), Forward{Root: "/a", Served: "/b"})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	fetch := func() *http.Response {
		resp, err := client.Get(s.URL + "/a/x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := fetch(); resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" {
		t.Errorf("foreign redirect: %v", resp)
	}
	location = "/a/x/"
	if resp := fetch(); resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "/b/x/" || resp.Header.Get("Alt-Svc") != "" {
		t.Errorf("own redirect: %v", resp)
	}
	code = http.StatusUnauthorized
	if resp := fetch(); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("our credentials: %v", resp)
	}
}

func TestPoolFollowsTheConfig(t *testing.T) {
	tokens := make(chan string, 10)
	_, config := newMember(t, func(_ http.ResponseWriter, r *http.Request) { tokens <- r.Header.Get("Authorization") })
	var p Pool
	first, err := p.For("m1", config)
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := p.For("m1", rest.CopyConfig(config)); same != first {
		t.Error("an equal config made another transport")
	}
	rotated := rest.CopyConfig(config)
	rotated.BearerToken = "new-token"
	second, err := p.For("m1", rotated)
	if err != nil || second == first {
		t.Fatalf("the old credentials stay in use: %v", err)
	}
	if _, err := second.Do(t.Context(), get("/x")); err != nil {
		t.Fatal(err)
	}
	if got := <-tokens; got != "Bearer new-token" {
		t.Errorf("sent %q", got)
	}
	dialA, dialB := dialer("a"), dialer("b")
	a, b := rest.CopyConfig(config), rest.CopyConfig(config)
	a.Dial, b.Dial = dialA, dialB
	ta, _ := p.For("m1", a)
	if tb, _ := p.For("m1", b); ta == tb {
		t.Error("two closures of one function are one")
	}
	p.Retain(func(name cache.ClusterName) bool { return name != "m1" })
	if third, _ := p.For("m1", b); third == ta {
		t.Error("a forgotten member kept its transport")
	}
	if _, err := p.For("m2", nil); err == nil || !strings.Contains(err.Error(), `cluster "m2"`) {
		t.Errorf("no config: %v", err)
	}
}

func dialer(name string) dialFunc {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(name) }
}
