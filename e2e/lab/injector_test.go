package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// plainServer counts requests; a path with "watch" answers three lines.
type plainServer struct {
	mu     sync.Mutex
	bodies []string
}

func (s *plainServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, string(body))
	n := len(s.bodies)
	s.mu.Unlock()
	if strings.Contains(r.URL.Path, "watch") {
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "{\"event\":%d}\n", i)
			w.(http.Flusher).Flush()
		}
		return
	}
	_, _ = fmt.Fprintf(w, "answer %d %s", n, strings.Repeat("x", 1000))
}

func (s *plainServer) delivered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

func TestInjector(t *testing.T) {
	for name, c := range map[string]struct {
		fault     Fault
		delivered int
		code      int // 0: no whole answer
		begins    string
	}{
		"pass":           {Fault{}, 1, 200, "answer 1"},
		"refuse":         {Fault{Injection: Refuse, Code: 409}, 0, 409, `{"kind":"Status"`},
		"lose a request": {Fault{Injection: LoseRequest, Hang: 10 * time.Millisecond}, 0, 0, ""},
		"lose an answer": {Fault{Injection: LoseAnswer, Hang: 10 * time.Millisecond}, 1, 0, ""},
		"cut an answer":  {Fault{Injection: CutAnswer}, 1, 0, ""},
		"repeat":         {Fault{Injection: Repeat}, 2, 200, "answer 2"},
	} {
		t.Run(name, func(t *testing.T) {
			plain := &plainServer{}
			i := injectorBefore(t, plain)
			i.Set(func(*http.Request) Fault { return c.fault })
			code, body, err := post(t.Context(), i, "/x")
			if c.code == 0 && err == nil {
				t.Errorf("a whole answer: %d %.60s", code, body)
			}
			if c.code != 0 && (err != nil || code != c.code || !strings.HasPrefix(body, c.begins)) {
				t.Errorf("%d %.60s (%v), want %d %s", code, body, err, c.code, c.begins)
			}
			if n := plain.delivered(); n != c.delivered {
				t.Errorf("delivered %d times, want %d", n, c.delivered)
			}
			if n := len(i.Counts()); (n == 0) != (c.fault.Injection == Pass) {
				t.Errorf("counted %v", i.Counts())
			}
			i.Set(nil)
			if code, _, err := post(t.Context(), i, "/x"); err != nil || code != 200 {
				t.Errorf("afterwards: %d, %v", code, err)
			}
		})
	}
}

// A request is delivered though its client has gone.
func TestInjectorDeliversForAClientThatWent(t *testing.T) {
	plain := &plainServer{}
	i := injectorBefore(t, plain)
	i.Set(func(*http.Request) Fault { return Fault{Injection: LoseAnswer, Hang: time.Minute} })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if code, _, err := post(ctx, i, "/x"); err == nil {
		t.Errorf("answered %d", code)
	}
	for deadline := time.Now().Add(10 * time.Second); plain.delivered() != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not delivered")
		}
	}
}

func TestInjectorRepeatsEvents(t *testing.T) {
	i := injectorBefore(t, &plainServer{})
	i.Set(func(*http.Request) Fault { return Fault{Injection: RepeatEvents} })
	_, body, err := post(t.Context(), i, "/watch")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		lines = append(lines, s.Text())
	}
	if want := `{"event":0} {"event":0} {"event":1} {"event":1} {"event":2} {"event":2}`; strings.Join(lines, " ") != want {
		t.Errorf("events %v", lines)
	}
}

// A silent answer has begun, and lasts until its client goes.
func TestInjectorIsSilent(t *testing.T) {
	plain := &plainServer{}
	i := injectorBefore(t, plain)
	i.Set(func(*http.Request) Fault { return Fault{Injection: Silence} })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	code, body, err := post(ctx, i, "/watch")
	if code != http.StatusOK || body != "" || !errors.Is(err, context.DeadlineExceeded) || plain.delivered() != 0 {
		t.Errorf("%d %q (%v), delivered %d times", code, body, err, plain.delivered())
	}
}

func injectorBefore(t *testing.T, h http.Handler) *Injector {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	i := newInjector(http.DefaultTransport, target)
	t.Cleanup(i.Close)
	return i
}

func post(ctx context.Context, i *Injector, path string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+i.Addr()+path, strings.NewReader("body"))
	if err != nil {
		return 0, "", err
	}
	resp, err := i.server.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
