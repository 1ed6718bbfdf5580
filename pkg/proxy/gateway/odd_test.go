package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// TestAnyStringIsAnswered sends what no server ever issued as resourceVersion
// and as continue token.
func TestAnyStringIsAnswered(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 3)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	allowed := map[int]bool{200: true, 400: true, 410: true, 504: true, 422: true}
	for range 1500 {
		text := randomText(r)
		token := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":%q,"left":%d}`, r.Int64()-1<<62, randomText(r), r.Int64()-1<<62))
		for _, q := range []string{"resourceVersion=" + url.QueryEscape(text), "continue=" + url.QueryEscape(text), "limit=1&continue=" + token, "limit=1&continue=" + url.QueryEscape(token+text)} {
			info := httptest.NewRequest(http.MethodGet, "/api/v1/pods?"+q, nil)
			w := httptest.NewRecorder()
			chain(e.handler).ServeHTTP(w, info)
			if !allowed[w.Code] {
				t.Fatalf("%s: %d: %s", q, w.Code, w.Body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: %s", q, w.Body)
			}
		}
	}
}

func randomText(r *rand.Rand) string {
	alphabets := []string{"0123456789", "abcdefghijklmnopqrstuvwxyz-./", "\x00\xff%{}\"\\ \n=/", "eyJ2IjoibWV0YS5rOHMuaW8vdjEi"}
	alphabet := alphabets[r.IntN(len(alphabets))]
	b := make([]byte, r.IntN(30))
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func FuzzDecodePosition(f *testing.F) {
	for _, namespaced := range []bool{true, false} {
		token, err := encodePosition(7, cache.Key{Namespace: "ns", Name: "name"}, namespaced, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(token, namespaced)
	}
	f.Fuzz(func(t *testing.T, token string, namespaced bool) {
		p, err := decodePosition(token, namespaced)
		if err != nil {
			return
		}
		if p.start == "" || namespaced && strings.Contains(p.from.Namespace, "/") || !namespaced && p.from.Namespace != "" {
			t.Fatalf("%q: %+v", token, p)
		}
	})
}

func TestPositionRoundTrip(t *testing.T) {
	left := int64(12)
	for _, namespaced := range []bool{true, false} {
		last := cache.Key{Name: "name.with.dots"}
		if namespaced {
			last.Namespace = "ns"
		}
		token, err := encodePosition(1<<62, last, namespaced, &left)
		if err != nil {
			t.Fatal(err)
		}
		p, err := decodePosition(token, namespaced)
		if err != nil || p.rv != 1<<62 || *p.left != left {
			t.Fatalf("%+v, %v", p, err)
		}
		// The next page begins after the last key and before any other.
		after := cache.Key{Namespace: last.Namespace, Name: last.Name + "-"}
		if p.from.Compare(last) <= 0 || p.from.Compare(after) >= 0 {
			t.Errorf("from %q", p.from)
		}
	}
}

func FuzzCoreEventToEvents(f *testing.F) {
	f.Add([]byte{0x0a, 0x00, 0x12, 0x01, 0x41})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := protoMetadata(raw); err != nil {
			return
		}
		out, err := coreEventToEvents(raw)
		if err == nil && len(out) > len(raw) {
			t.Fatalf("%x grew to %x", raw, out)
		}
	})
}

// TestEveryKindHasATable prints a blank object of every kind, as the rows of
// bookmarks are, and damaged bytes, as a broken member may send them.
func TestEveryKindHasATable(t *testing.T) {
	tables := newTableMaker(legacyscheme.Scheme, nil)
	n := 0
	for gvk, typ := range legacyscheme.Scheme.AllKnownTypes() {
		obj := reflect.New(typ).Interface()
		if _, ok := obj.(metav1.Object); !ok || gvk.Version == k8sruntime.APIVersionInternal {
			continue
		}
		if _, ok := obj.(protoObject); !ok {
			continue
		}
		n++
		k := &kind{gvk: gvk, scheme: legacyscheme.Scheme, known: true}
		columns, err := tables.columns(k)
		if err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
		mark, err := k.bookmark(5, true)
		if err != nil {
			t.Fatal(err)
		}
		cells, _, err := tables.cells(k, mark)
		if err != nil || len(cells) != len(columns) {
			t.Errorf("%s: %d cells for %d columns, %v", gvk, len(cells), len(columns), err)
		}
		if len(columns) > len(plainColumns)+1 {
			cells, _, err = tables.cells(k, &cache.Object{Key: cache.Key{Name: "x"}, Body: cache.Bytes{0x12, 0x7f}})
			if err != nil || len(cells) != len(columns) || cells[0] != "x" {
				t.Errorf("%s: damaged: %v, %v", gvk, cells, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d kinds", n)
	}
}

// TestBrokenObjectCutsTheAnswer: a part must never pass for the whole.
func TestBrokenObjectCutsTheAnswer(t *testing.T) {
	e := newEndpoint(t)
	e.putPods(t, "m1", "default", 300)
	e.pods.putRaw(&cache.Object{Key: cache.Key{Namespace: "zz", Name: "broken"}, Body: cache.Bytes{0x12, 0x7f}})
	resp, err := e.Client().Get(e.URL + "/api/v1/pods") //nolint:noctx // a test
	if err != nil {
		return // cut before the header
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
		t.Errorf("a list with an unreadable object ended well")
	}
}

func TestWatchOverHTTP2(t *testing.T) {
	e := newEndpoint(t, func(o *Options) { o.WriteTimeout = 100 * time.Millisecond })
	s := httptest.NewUnstartedServer(chain(e.handler))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/pods?watch=1&resourceVersion=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatalf("HTTP/%d", resp.ProtoMajor)
	}
	w := &events{t: t, resp: resp, dec: json.NewDecoder(resp.Body)}
	for i := range 3 {
		time.Sleep(150 * time.Millisecond) // idle for longer than a write may take
		e.pods.put(t, "m1", pod("default", "a"), podFields)
		if ev := w.next(); ev.Object.Metadata.ResourceVersion != formatRV(uint64(110+10*i)) {
			t.Fatalf("got %s", ev)
		}
	}
}

func TestWatchesLeaveNothingBehind(t *testing.T) {
	e := newEndpoint(t)
	one := func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/api/v1/pods?watch=1&resourceVersion=100", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := e.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	one()
	time.Sleep(50 * time.Millisecond)
	before := runtime.NumGoroutine()
	for range 200 {
		one()
	}
	e.CloseClientConnections()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before+5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
