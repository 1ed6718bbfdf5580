package gateway

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// watchEvent is one event with what most tests look at.
type watchEvent struct {
	Type   string
	Object struct {
		Kind              string
		Metadata          metav1.ObjectMeta
		Code              int
		Reason            string
		ColumnDefinitions []metav1.TableColumnDefinition
		Rows              []metav1.TableRow
	}
}

func (e watchEvent) String() string {
	m := e.Object.Metadata
	return fmt.Sprintf("%s %s@%s", e.Type, m.Name, m.ResourceVersion)
}

// events reads a JSON watch.
type events struct {
	t    testing.TB
	resp *http.Response
	dec  *json.Decoder
}

func (e *endpoint) watch(t testing.TB, path, accept string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := e.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &events{t: t, resp: resp, dec: json.NewDecoder(resp.Body)}
}

func (w *events) next() watchEvent {
	w.t.Helper()
	var e watchEvent
	if err := w.dec.Decode(&e); err != nil {
		w.t.Fatalf("next event: %v", err)
	}
	return e
}

func (w *events) expect(want ...string) {
	w.t.Helper()
	for _, s := range want {
		if got := w.next().String(); got != s {
			w.t.Fatalf("got %q, want %q", got, s)
		}
	}
}

func (w *events) expectEnd() {
	w.t.Helper()
	var e watchEvent
	if err := w.dec.Decode(&e); err != io.EOF {
		w.t.Fatalf("got %v %v, want the end", e, err)
	}
}

func TestWatchHeadersComeAtOnce(t *testing.T) {
	e := newEndpoint(t)
	begin := time.Now()
	w := e.watch(t, "/api/v1/namespaces/quiet/pods?watch=1&resourceVersion=100", "")
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the header took %s", took)
	}
	if w.resp.StatusCode != 200 || w.resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", w.resp.StatusCode, w.resp.Header)
	}
}

func TestWatchFromResourceVersion(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 2) // 110, 120
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=110", "")
	w.expect("ADDED m1-001@120")
	e.putPods(t, "m1", "default", 1) // 130
	w.expect("MODIFIED m1-000@130")
	e.pods.remove(t, pod("default", "m1-001")) // 140
	w.expect("DELETED m1-001@140")
	e.putPods(t, "m2", "other", 20)
	for i := range 20 {
		w.expect(fmt.Sprintf("ADDED m2-%03d@%d", i, 150+10*i))
	}
}

func TestWatchInitialEvents(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 2)
	for _, query := range []string{"", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		w := e.watch(t, "/api/v1/pods?watch=1"+query, "")
		w.expect("ADDED m1-000@110", "ADDED m1-001@120")
	}
	w := e.watch(t, "/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "")
	e.pods.put(t, "m1", pod("default", "new"), podFields)
	w.expect("ADDED new@130")
}

const watchList = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

func TestWatchListBookmark(t *testing.T) {
	for _, n := range []int{0, 1, 200} {
		for _, query := range []string{"", "&resourceVersion=0", "&resourceVersion=100", "&labelSelector=app%3Dweb"} {
			e := newEndpoint(t)
			e.putPods(t, "m1", "default", n)
			w := e.watch(t, "/api/v1/pods?watch=1"+watchList+query, "")
			for range n {
				if ev := w.next(); ev.Type != "ADDED" {
					t.Fatalf("got %s", ev)
				}
			}
			mark := w.next()
			if mark.Type != "BOOKMARK" || mark.Object.Kind != "Pod" || mark.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" || mark.Object.Metadata.ResourceVersion != formatRV(uint64(100+10*n)) {
				t.Fatalf("bookmark %+v", mark)
			}
			e.pods.put(t, "m1", pod("default", "after"), podFields)
			if ev := w.next(); ev.Type != "ADDED" || ev.Object.Metadata.Name != "after" {
				t.Fatalf("got %s", ev)
			}
		}
	}
}

func TestWatchListGzip(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 300)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/api/v1/pods?watch=1&timeoutSeconds=3"+watchList, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers %v", resp.Header)
	}
	// A reader of one member must see it all: not every client reads several.
	raw := bufio.NewReader(resp.Body)
	gz, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	gz.Multistream(false)
	w := &events{t: t, dec: json.NewDecoder(gz)}
	for range 300 {
		w.next()
	}
	if ev := w.next(); ev.Type != "BOOKMARK" {
		t.Fatalf("got %s", ev)
	}
	e.pods.put(t, "m1", pod("default", "live"), podFields)
	// A bookmark is due two seconds before the end, and so at some time here.
	var after []string
	for len(after) < 2 {
		after = append(after, w.next().Type)
	}
	if slices.Sort(after); !slices.Equal(after, []string{"ADDED", "BOOKMARK"}) {
		t.Fatalf("got %v after the initial events", after)
	}
	w.expectEnd()
	if rest, err := io.ReadAll(raw); err != nil || len(rest) != 0 {
		t.Errorf("%d bytes after the gzip member, %v", len(rest), err)
	}
}

func TestWatchTransitions(t *testing.T) {
	e := newEndpoint(t)
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100&fieldSelector=status.phase%3DRunning&labelSelector=app%3Dweb", "")
	put := func(name, phase, app string) {
		p := pod("default", name)
		p.Status.Phase = corev1.PodPhase(phase)
		p.Labels["app"] = app
		e.pods.put(t, "m1", p, fields.Set{"status.phase": phase})
	}
	put("a", "Pending", "web") // 110: not seen
	put("a", "Running", "web") // 120: enters
	w.expect("ADDED a@120")
	put("a", "Running", "web") // 130
	w.expect("MODIFIED a@130")
	put("a", "Running", "db") // 140: leaves
	left := w.next()
	if left.String() != "DELETED a@140" || left.Object.Metadata.Labels["app"] != "web" {
		t.Fatalf("got %s with labels %v", left, left.Object.Metadata.Labels)
	}
	put("a", "Failed", "db")              // 150: not seen
	e.pods.remove(t, pod("default", "a")) // 160: not seen
	put("b", "Running", "web")            // 170
	e.pods.remove(t, pod("default", "b")) // 180
	w.expect("ADDED b@170", "DELETED b@180")
}

func TestTransition(t *testing.T) {
	s := &selection{}
	var err error
	if s.fields, err = fields.ParseSelector("x=1"); err != nil {
		t.Fatal(err)
	}
	s.labels = labels.Everything()
	in := &cache.Object{Fields: fields.Set{"x": "1"}}
	out := &cache.Object{}
	for _, tc := range []struct {
		name      string
		typ       cache.EventType
		now, prev *cache.Object
		want      watchType
	}{
		{"added", cache.Added, in, nil, eventAdded},
		{"added elsewhere", cache.Added, out, nil, eventNone},
		{"modified", cache.Modified, in, in, eventModified},
		{"enters", cache.Modified, in, out, eventAdded},
		{"leaves", cache.Modified, out, in, eventLeft},
		{"modified elsewhere", cache.Modified, out, out, eventNone},
		{"modified, state before unknown", cache.Modified, in, nil, eventModified},
		{"deleted", cache.Deleted, in, in, eventDeleted},
		{"deleted, state before unknown", cache.Deleted, in, nil, eventDeleted},
		{"deleted elsewhere", cache.Deleted, out, out, eventNone},
	} {
		if got := transition(s, &cache.Event{Type: tc.typ, Object: tc.now, Prev: tc.prev}); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestWatchExpired(t *testing.T) {
	e := newEndpoint(t)
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=50", "")
	ev := w.next()
	if w.resp.StatusCode != 200 || ev.Type != "ERROR" || ev.Object.Kind != "Status" || ev.Object.Code != 410 || ev.Object.Reason != "Expired" {
		t.Fatalf("%d %+v", w.resp.StatusCode, ev)
	}
	w.expectEnd()
	slow := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100", "")
	e.pods.expire()
	if ev := slow.next(); ev.Type != "ERROR" || ev.Object.Code != 410 {
		t.Fatalf("%+v", ev)
	}
	slow.expectEnd()
	if resp, _ := e.fetch(t, "/api/v1/pods?watch=1&resourceVersion=5000", ""); resp.StatusCode != 504 {
		t.Errorf("RV ahead of the log: %d", resp.StatusCode)
	}
}

func TestWatchRules(t *testing.T) {
	e := newEndpoint(t)
	for query, code := range map[string]int{
		"sendInitialEvents=true":                                                        422,
		"sendInitialEvents=true&resourceVersionMatch=Exact":                             422,
		"resourceVersionMatch=NotOlderThan":                                             422,
		"resourceVersionMatch=NotOlderThan&resourceVersion=100":                         422,
		"sendInitialEvents=false":                                                       422,
		"resourceVersion=abc":                                                           400,
		"resourceVersion=100&fieldSelector=spec.color%3Dred":                            400,
		"resourceVersion=100&timeoutSeconds=x":                                          400,
		"resourceVersion=100&consistency=x":                                             400,
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7000": 504,
	} {
		if resp, b := e.fetch(t, "/api/v1/pods?watch=1&"+query, ""); resp.StatusCode != code {
			t.Errorf("%s: %d, want %d: %s", query, resp.StatusCode, code, b)
		}
	}
}

func TestWatchTable(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 2)
	for _, include := range []string{"", "&includeObject=None"} {
		w := e.watch(t, "/api/v1/pods?watch=1"+watchList+include, tableJSON)
		for i := range 2 {
			ev := w.next()
			if (len(ev.Object.ColumnDefinitions) > 0) != (i == 0) || ev.Object.Rows[0].Cells[1] != "m1" {
				t.Fatalf("event %d: %+v", i, ev)
			}
		}
		mark := w.next()
		if mark.Type != "BOOKMARK" || mark.Object.Kind != "Table" || !strings.Contains(string(mark.Object.Rows[0].Object.Raw), metav1.InitialEventsAnnotationKey) {
			t.Fatalf("bookmark %+v", mark)
		}
		e.pods.put(t, "m2", pod("default", "live"+include[:min(len(include), 1)]), podFields)
		ev := w.next()
		if len(ev.Object.ColumnDefinitions) > 0 || ev.Object.Rows[0].Cells[1] != "m2" {
			t.Fatalf("live event %+v", ev)
		}
		e.pods.remove(t, pod("default", "live"+include[:min(len(include), 1)]))
	}
	// The column definitions also come with the first live event.
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion="+formatRV(e.pods.rv), tableJSON)
	e.pods.put(t, "m2", pod("default", "first"), podFields)
	if ev := w.next(); len(ev.Object.ColumnDefinitions) == 0 {
		t.Errorf("first event without columns")
	}
}

func TestWatchPartial(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 1)
	w := e.watch(t, "/api/v1/pods?watch=1"+watchList, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
	for _, want := range []string{"ADDED m1-000@110", "BOOKMARK @110"} {
		if ev := w.next(); ev.String() != want || ev.Object.Kind != "PartialObjectMetadata" {
			t.Fatalf("got %s of kind %s, want %s", ev, ev.Object.Kind, want)
		}
	}
}

func TestWatchSingleObject(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 3)
	for _, path := range []string{
		"/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name%3Dm1-001",
		"/api/v1/watch/namespaces/default/pods/m1-001?",
	} {
		w := e.watch(t, path, "")
		w.expect("ADDED m1-001@120")
	}
	if resp, b := e.fetch(t, "/api/v1/watch/namespaces/default/pods/m1-001?fieldSelector=metadata.name%3Dother", ""); resp.StatusCode != 400 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}

func TestWatchBookmarksAndTimeout(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.BookmarkInterval = 300 * time.Millisecond })
	e.putPods(t, "m1", "other", 3)
	begin := time.Now()
	w := e.watch(t, "/api/v1/namespaces/quiet/pods?watch=1&resourceVersion=100&allowWatchBookmarks=true&timeoutSeconds=3&labelSelector=none%3Dsuch", "")
	n := 0
	for {
		var ev watchEvent
		if err := w.dec.Decode(&ev); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if ev.String() != "BOOKMARK @130" || len(ev.Object.Metadata.Annotations) > 0 {
			t.Errorf("got %s %v", ev, ev.Object.Metadata.Annotations)
		}
		n++
	}
	if took := time.Since(begin); took < 2900*time.Millisecond || took > 6*time.Second {
		t.Errorf("the watch took %s", took)
	}
	if n < 3 {
		t.Errorf("%d bookmarks", n)
	}
	w = e.watch(t, "/api/v1/pods?watch=1&resourceVersion=130&timeoutSeconds=1", "")
	w.expectEnd() // no bookmark was asked for
}

func TestBookmarkClock(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		timeout time.Duration
		want    []time.Duration
	}{
		{10 * time.Second, []time.Duration{8, 10}},
		{time.Second, []time.Duration{1}},
		{150 * time.Second, []time.Duration{60, 120, 148, 150}},
	} {
		c := newBookmarkClock(now, tc.timeout, time.Minute)
		var got []time.Duration
		for range 10 {
			got = append(got, c.next.Sub(now)/time.Second)
			if !c.next.Before(c.end) {
				break
			}
			c.advance(c.next)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: wakes at %v, want %v", tc.timeout, got, tc.want)
		}
	}
}

func TestWatchTimeout(t *testing.T) {
	i := func(n int64) *int64 { return &n }
	if got := watchTimeout(i(7), time.Hour); got != 7*time.Second {
		t.Errorf("asked for 7 s, got %s", got)
	}
	if got := watchTimeout(i(1<<62), time.Hour); got != maxWatch {
		t.Errorf("asked for the moon, got %s", got)
	}
	for _, asked := range []*int64{nil, i(0), i(-5)} {
		if got := watchTimeout(asked, time.Hour); got < time.Hour || got >= 2*time.Hour {
			t.Errorf("by default %s", got)
		}
	}
}

type shutdown chan struct{}

func (s shutdown) ShuttingDown() <-chan struct{} { return s }

func TestWatchEndsOnShutdown(t *testing.T) {
	signal := make(shutdown)
	e := newEndpoint(t)
	inner := e.Config.Handler
	e.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r.WithContext(request.WithServerShutdownSignal(r.Context(), signal)))
	})
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100", "")
	close(signal)
	w.expectEnd()
}

func TestWatchEndsWhenTheCacheCloses(t *testing.T) {
	e := newEndpoint(t)
	w := e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100", "")
	e.pods.mu.Lock()
	e.pods.closed = true
	e.pods.wake()
	e.pods.mu.Unlock()
	w.expectEnd()
}

func TestSlowWatcherIsEnded(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.WriteTimeout = 100 * time.Millisecond })
	done := make(chan struct{})
	inner := e.Config.Handler
	e.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		inner.ServeHTTP(w, r)
	})
	e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100", "") // nobody reads
	big := strings.Repeat("x", 1<<20)
	for i := range 32 {
		p := pod("default", fmt.Sprintf("big-%d", i))
		p.Annotations = map[string]string{"big": big}
		e.pods.put(t, "m1", p, nil)
	}
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Fatal("a watch whose client does not read goes on")
	}
}

func TestEventsAreEncodedOnce(t *testing.T) {
	e := newEndpoint(t)
	var streams []*events
	for range 5 {
		streams = append(streams, e.watch(t, "/api/v1/pods?watch=1&resourceVersion=100", ""))
	}
	e.putPods(t, "m1", "default", 1)
	for _, w := range streams {
		w.expect("ADDED m1-000@110")
	}
	made := false
	enc := newEventEncoder(&kind{}, form{media: "application/json"}, nil)
	enc.memoKeys = newEventEncoder(e.handler.kindOf(&request.RequestInfo{APIVersion: "v1", Resource: "pods"}, podResource), form{media: "application/json"}, e.handler.tables).memoKeys
	if _, err := e.pods.log[0].Memo.Encoded(enc.memoKeys[0][eventAdded], func() ([]byte, error) { made = true; return nil, nil }); err != nil || made {
		t.Errorf("the event is not in the memo (%v)", err)
	}
}
