package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder writes down what a feed brings.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, " ")
}

func name(raw []byte) string {
	m, err := wire.ParseMeta(cache.JSON, raw)
	if err != nil {
		return err.Error()
	}
	return m.Name + "@" + m.ResourceVersion
}

func (r *recorder) Begin()                  { r.add("begin") }
func (r *recorder) Put(raw []byte) error    { r.add("+%s", name(raw)); return nil }
func (r *recorder) Delete(raw []byte) error { r.add("-%s", name(raw)); return nil }
func (r *recorder) End(rv string)           { r.add("end@%s", rv) }
func (r *recorder) Abort()                  { r.add("abort") }
func (r *recorder) Progress(rv string)      { r.add("at@%s", rv) }
func (r *recorder) Flush()                  {}
func (r *recorder) Connected()              { r.add("connected") }
func (r *recorder) Disconnected(error)      { r.add("disconnected") }

var widgets = cache.Resource{
	GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
	Kind:                 "Widget", Namespaced: true, Encoding: cache.JSON,
}

// script is a member: each entry answers one request of the kind that it
// names; the last one is repeated.
type script struct {
	t     *testing.T
	mu    sync.Mutex
	steps []step
	log   []string
}

type step struct {
	want   string // of the query: "initial", "list", "watch@RV"
	answer func(http.ResponseWriter, *http.Request)
}

func kindOf(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.URL.Path != "/apis/example.com/v1/widgets" && r.URL.Path != "/api/v1/pods":
		return r.URL.Path
	case q.Get("sendInitialEvents") == "true":
		return "initial"
	case q.Get("watch") == "true":
		return "watch@" + q.Get("resourceVersion")
	case q.Get("continue") != "":
		return "list+" + q.Get("continue")
	}
	return "list" + strings.TrimSuffix(q.Get("limit"), "500")
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	kind := kindOf(r)
	s.log = append(s.log, kind)
	var next step
	if len(s.steps) > 0 {
		next = s.steps[0]
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	if next.answer == nil {
		<-r.Context().Done() // the script is over: silence
		return
	}
	if next.want != kind {
		s.t.Errorf("request %q where %q is due", kind, next.want)
	}
	next.answer(w, r)
}

// events answers a watch with these events: "+name@rv", "-name@rv", "*rv" a
// bookmark, "!rv" the one that ends the initial events, "410", and "..." to
// stay open.
func events(list string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		for e := range strings.FieldsSeq(list) {
			if e == "..." {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprintf(w, "%s\n", event(e))
			w.(http.Flusher).Flush()
		}
	}
}

func event(e string) string {
	typ, annotations := map[byte]string{'+': "ADDED", '-': "DELETED", '*': "BOOKMARK", '!': "BOOKMARK"}[e[0]], ""
	if e == "410" {
		return `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`
	}
	if e[0] == '!' {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	n, rv, ok := strings.Cut(e[1:], "@")
	if !ok {
		n, rv = "", e[1:]
	}
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":%q,"namespace":"d","resourceVersion":%q%s}}}`, typ, n, rv, annotations)
}

func list(rv, cont string, items ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var all []string
		for _, i := range items {
			n, rv, _ := strings.Cut(i, "@")
			all = append(all, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"d","resourceVersion":%q}}`, n, rv))
		}
		fmt.Fprintf(w, `{"kind":"WidgetList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, rv, cont, strings.Join(all, ","))
	}
}

// oversized sends more than any page may hold.
func oversized(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range maxPage>>20 + 1 {
		if _, err := w.Write(chunk); err != nil {
			return // as much as is wanted has been read
		}
	}
}

func refuse(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(code)}); err != nil {
			panic(err)
		}
	}
}

func plain(code int, typ, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typ)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func discovery(names ...string) func(http.ResponseWriter, *http.Request) {
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf(`{"name":%q}`, n))
	}
	return plain(200, "application/json", `{"kind":"APIResourceList","resources":[`+strings.Join(list, ",")+`]}`)
}

func TestFeed(t *testing.T) {
	t.Parallel()
	html := plain(200, "text/html", "<html>")
	cases := map[string]struct {
		steps []step
		want  string
	}{
		"initial events, then live": {
			[]step{{"initial", events("+a@3 +b@2 !5 +a@6 -b@7 *9 ...")}},
			"begin +a@3 +b@2 end@5 +a@6 -b@7 at@9",
		},
		"resumes after the end of a watch": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", events("+b@8 *9 ...")}},
			"begin end@5 +a@6 connected +b@8 at@9",
		},
		"falls back to pages": {
			[]step{{"initial", refuse(422)}, {"list", list("7", "more", "a@3")}, {"list+more", list("8", "", "b@4")}, {"watch@7", events("+c@9 ...")}},
			"begin begin +a@3 +b@4 end@7 connected +c@9",
		},
		"pages that are too large are asked for in parts": {
			[]step{
				{"initial", refuse(422)},
				{"list", oversized},
				{"list62", list("7", "more", "a@3")},
				{"list+more", oversized},
				{"list+more", list("8", "", "b@4")},
				{"watch@7", events("+c@9 ...")},
			},
			"begin begin +a@3 +b@4 end@7 connected +c@9",
		},
		"expires in a watch": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", events("410")}, {"initial", events("+b@9 !10 ...")}},
			"begin end@5 +a@6 connected begin +b@9 end@10",
		},
		"expires at once": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", refuse(410)}, {"initial", events("!10 ...")}},
			"begin end@5 +a@6 begin end@10",
		},
		"initial events are cut": {
			[]step{{"initial", events("+a@3")}, {"initial", events("+b@4 !5 ...")}},
			"begin +a@3 abort disconnected begin +b@4 end@5",
		},
		"answers nonsense": {
			[]step{{"initial", html}, {"initial", refuse(500)}, {"initial", events("!5 ...")}},
			"begin abort disconnected begin abort disconnected begin end@5",
		},
		"one failure is no outage": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", refuse(500)}, {"list1", list("8", "")}, {"watch@6", events("+b@7 ...")}},
			"begin end@5 +a@6 connected +b@7",
		},
		"an outage": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", refuse(500)}, {"list1", refuse(500)}, {"list1", list("8", "")}, {"watch@6", events("+b@7 ...")}},
			"begin end@5 +a@6 disconnected connected +b@7",
		},
		"goes back in time": {
			[]step{{"initial", events("!50 +a@60")}, {"watch@60", refuse(500)}, {"list1", list("8", "")}, {"initial", events("!9 ...")}},
			"begin end@50 +a@60 begin end@9",
		},
		"does not have the resource": {
			[]step{{"initial", plain(404, "text/plain", "404 page not found")}, {"/apis/example.com/v1", discovery("gadgets")}},
			"begin abort begin end@0",
		},
		"does not find what it has": {
			[]step{{"initial", plain(404, "text/plain", "404 page not found")}, {"/apis/example.com/v1", discovery("widgets")}, {"initial", events("!5 ...")}},
			"begin abort disconnected begin end@5",
		},
		"finds nothing at all": {
			[]step{{"initial", plain(404, "text/html", "no")}, {"/apis/example.com/v1", plain(404, "text/html", "no")}, {"/apis", plain(404, "text/html", "no")}, {"initial", events("!5 ...")}},
			"begin abort disconnected begin end@5",
		},
		"ends its watches at once": {
			[]step{{"initial", events("!5 +a@6")}, {"watch@6", events("")}, {"list1", list("6", "")}, {"watch@6", events("+b@7 ...")}},
			"begin end@5 +a@6 connected connected +b@7",
		},
		"sends what cannot be read": {
			[]step{{"initial", events("+a@3 !5")}, {"watch@5", plain(200, "application/json", "{\n")}, {"list1", list("6", "")}, {"watch@5", events("+b@7 ...")}},
			"begin +a@3 end@5 connected connected +b@7",
		},
		"keeps sending what cannot be read": {
			[]step{
				{"initial", events("+a@3 !5")},
				{"watch@5", plain(200, "application/json", "{\n")},
				{"list1", list("6", "")},
				{"watch@5", plain(200, "application/json", "{\n")},
				{"list1", list("6", "")},
				{"watch@5", events("+b@7 ...")},
			},
			"begin +a@3 end@5 connected connected disconnected connected +b@7",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{t: t, steps: tc.steps}
			r := run(t, s)
			for deadline := time.Now().Add(10 * time.Second); r.String() != tc.want; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("got  %s\nwant %s\nrequests %v", r, tc.want, s.log)
				}
			}
		})
	}
}

func run(t *testing.T, handler http.Handler) *recorder {
	t.Helper()
	server := httptest.NewServer(handler)
	r := &recorder{}
	f := New(&rest.Config{Host: server.URL}, Options{Resource: widgets, Sink: r, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return r
}

func TestReconfigure(t *testing.T) {
	first := &script{t: t, steps: []step{{"initial", events("!5 +a@6 ...")}}}
	second := &script{t: t, steps: []step{{"watch@6", events("+b@7 ...")}}}
	one, two := httptest.NewServer(first), httptest.NewServer(second)
	r := &recorder{}
	f := New(&rest.Config{Host: one.URL}, Options{Resource: widgets, Sink: r, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	await(t, r, "begin end@5 +a@6")
	f.Reconfigure(&rest.Config{Host: two.URL})
	await(t, r, "begin end@5 +a@6 connected +b@7")
	cancel()
	<-done
	one.Close()
	two.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func await(t *testing.T, r *recorder, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); r.String() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %s, want %s", r, want)
		}
	}
}

// A source that takes long to fail is as much away as one that refuses at once.
func TestSlowFailuresAreAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		f := New(&rest.Config{Host: "https://127.0.0.1:1"}, Options{
			Resource: widgets, Sink: r, Clock: clock.RealClock{}, From: "5",
			Check: func(context.Context, *rest.Config) error {
				time.Sleep(2 * healthyAfter)
				return errors.New("no answer")
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*healthyAfter)
		defer cancel()
		f.Run(ctx)
		if r.String() != "disconnected" {
			t.Errorf("after 5 times as long as health takes: %q", r)
		}
	})
}

// A connection that stays open and says nothing, not even a bookmark, is given
// up: the member is asked, and followed from where it was.
func TestSilenceIsNoticed(t *testing.T) {
	s := &script{t: t, steps: []step{{"initial", events("!5 +a@6 *9 ...")}, {"list1", list("9", "")}, {"watch@9", events("+b@10 ...")}}}
	server := httptest.NewServer(s)
	now := clocktesting.NewFakeClock(time.Now())
	r := &recorder{}
	f := New(&rest.Config{Host: server.URL}, Options{Resource: widgets, Sink: r, Clock: now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	await(t, r, "begin end@5 +a@6 at@9")
	requests := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.log)
	}
	for deadline := time.Now().Add(10 * time.Second); !now.HasWaiters(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the next bookmark")
		}
	}
	now.Step(silenceWait - time.Second)
	time.Sleep(50 * time.Millisecond)
	if n := requests(); n != 1 {
		t.Errorf("%d requests before the silence is long enough", n)
	}
	for deadline := time.Now().Add(10 * time.Second); requests() < 3; time.Sleep(5 * time.Millisecond) {
		if now.Step(time.Second); time.Now().After(deadline) {
			t.Fatalf("the silence is not noticed: requests %v", s.log)
		}
	}
	await(t, r, "begin end@5 +a@6 at@9 connected +b@10")
}
