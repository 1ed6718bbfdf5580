package security

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// impostor stands in a member's place with a certificate of its own. It passes
// on what it is asked, until it is told to misbehave.
type impostor struct {
	server *httptest.Server
	// bait is where it redirects to, and counts who comes.
	bait    *httptest.Server
	visited atomic.Int64

	mu    sync.Mutex
	act   func(w http.ResponseWriter, r *http.Request) (done bool)
	seen  []*http.Request // heads of requests
	acted int
	stop  chan struct{} // ends what misbehaves
}

func newImpostor(m *lab.Member) (*impostor, error) {
	config, err := m.RESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.AnonymousClientConfig(config)
	config.NextProtos = []string{"http/1.1"} // for upgrades
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	i := &impostor{stop: make(chan struct{})}
	i.bait = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.visited.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	relay := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
	}
	i.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.seen = append(i.seen, r.Clone(context.WithoutCancel(r.Context())))
		act := i.act
		i.mu.Unlock()
		if act != nil && act(w, r) {
			return
		}
		relay.ServeHTTP(w, r)
	}))
	return i, nil
}

func (i *impostor) close() {
	i.behave()
	i.server.CloseClientConnections()
	i.server.Close()
	i.bait.Close()
}

// misbehave answers requests whose path contains the text by act from now on;
// connections that are open, and so all watches, are cut.
func (i *impostor) misbehave(path string, act func(w http.ResponseWriter, r *http.Request)) {
	i.mu.Lock()
	i.acted = 0
	i.act = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, path) {
			return false
		}
		// Before it acts: it may not be done when its client is.
		i.mu.Lock()
		i.acted++
		i.mu.Unlock()
		act(w, r)
		return true
	}
	i.mu.Unlock()
}

// behave ends the misbehaviour.
func (i *impostor) behave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.act = nil
	close(i.stop)
	i.stop = make(chan struct{})
}

// stopped is closed when the present misbehaviour ends.
func (i *impostor) stopped() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stop
}

// count is how often it has misbehaved since it was told to.
func (i *impostor) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.acted
}

// requests are the heads that arrived and whose path contains the text.
func (i *impostor) requests(path string) []*http.Request {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []*http.Request
	for _, r := range i.seen {
		if strings.Contains(r.URL.Path, path) {
			out = append(out, r)
		}
	}
	return out
}

// The ways to misbehave.

func (i *impostor) redirect(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", i.bait.URL+r.URL.Path)
		w.WriteHeader(code)
	}
}

func html(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	_, _ = w.Write([]byte("<html><body>It works!</body></html>"))
}

// endlessly repeats a text as a body of the given type.
func (i *impostor) endlessly(mediaType, begin, text string) http.HandlerFunc {
	chunk := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		if _, err := w.Write([]byte(begin)); err != nil {
			return
		}
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

// slowly sends a byte of an answer a second.
func (i *impostor) slowly(text string) http.HandlerFunc {
	return i.raw(func(conn net.Conn) {
		stop := i.stopped()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			if _, err := conn.Write([]byte{text[n%len(text)]}); err != nil {
				return
			}
		}
	})
}

// silently never answers.
func (i *impostor) silently(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-i.stopped():
	case <-r.Context().Done():
	}
}

// bytes answers with these and then leaves the connection open for a moment.
func (i *impostor) bytes(text string) http.HandlerFunc {
	return i.raw(func(conn net.Conn) {
		_, _ = conn.Write([]byte(text))
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = bufio.NewReader(conn).ReadByte()
	})
}

// heads sends header lines without an end.
func (i *impostor) heads() http.HandlerFunc {
	return i.raw(func(conn net.Conn) {
		if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n")); err != nil {
			return
		}
		line := []byte("X-Filler: " + strings.Repeat("x", 8<<10) + "\r\n")
		for {
			if _, err := conn.Write(line); err != nil {
				return
			}
		}
	})
}

func (i *impostor) raw(do func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close() //nolint:errcheck // of a test
		do(conn)
	}
}

// interimForEver sends interim answers and never one that counts.
func interimForEver(conn net.Conn) {
	for {
		if _, err := conn.Write([]byte("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")); err != nil {
			return
		}
	}
}
