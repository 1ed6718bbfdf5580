package gateway

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// packedPods is a store of realistic Pods, all packed.
func packedPods(t testing.TB, n int) *store.Store {
	t.Helper()
	names := wire.FieldsOf("", "Pod").Names
	s := store.New(100, store.Limits{Bytes: 1, Age: time.Minute}, clock.RealClock{}, &pack.Packer{Fields: names, Arena: arena.New()})
	for i := range n {
		rv := uint64(101 + i)
		s.Commit(&cache.Event{Type: cache.Added, RV: rv, Object: cachetest.RealisticObject(t, names, i, rv)})
	}
	s.Publish()
	s.PackAll()
	return s
}

// change puts changes over the blocks: some Pods are gone, some are new, some
// are others.
func change(t testing.TB, s *store.Store, pods int) {
	t.Helper()
	names := wire.FieldsOf("", "Pod").Names
	for i := 3; i < pods; i += pods / 10 {
		rv := s.Head() + 1
		o := cachetest.RealisticObject(t, names, i, rv)
		prev, ok := s.At(o.Key)
		if !ok {
			t.Fatalf("%s is not there", o.Key)
		}
		e := &cache.Event{Type: cache.Modified, RV: rv, Object: o, Prev: prev}
		switch i % 3 {
		case 0:
			e.Type = cache.Deleted
		case 1:
			e.Type, e.Prev, o.Key.Name = cache.Added, nil, o.Key.Name+"x"
		}
		s.Commit(e)
	}
	s.Publish()
}

// plainSnapshot hides that a snapshot is packed.
type plainSnapshot struct{ cache.Snapshot }

type listForm struct{ name, accept, query string }

func listForms() []listForm {
	return []listForm{
		{"protobuf", protobuf, ""},
		{"json", "application/json", ""},
		{"table", tableJSON, ""},
		{"table-none", tableJSON, "?includeObject=None"},
		{"metadata", protobuf + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""},
		{"metadata-json", partialJSON, ""},
		{"selected", "application/json", "?labelSelector=bench.isthmus.dev/percent%3D7"},
		{"selected-protobuf", protobuf, "?labelSelector=bench.isthmus.dev/percent%3D7"},
	}
}

func plainText(t testing.TB, resp *http.Response, b []byte) []byte {
	t.Helper()
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return b
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Multistream(false)
	if b, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPackedLists: what is put together of pieces is byte for byte what is
// encoded object by object, the first time and the next.
func TestPackedLists(t *testing.T) {
	const pods = 600
	s := packedPods(t, pods)
	change(t, s, pods)
	e := newEndpoint(t)
	forms := append(listForms(),
		listForm{"pretty", "application/json", "?pretty=1&limit=50"}, listForm{"yaml", "application/yaml", "?limit=50"},
		listForm{"page", "application/json", "?limit=100"}, listForm{"page of the selected", protobuf, "?limit=3&labelSelector=bench.isthmus.dev/percent%3D7"},
		listForm{"large page", protobuf, fmt.Sprintf("?limit=%d", pods-20)})
	for _, form := range forms {
		for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/bench-07/pods", "/api/v1/namespaces/none/pods"} {
			e.pods.packed = func() cache.Snapshot { return plainSnapshot{s.Present()} }
			resp, want := e.fetch(t, path+form.query, form.accept)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s %s: %s", form.name, path, want)
			}
			e.pods.packed = func() cache.Snapshot { return s.Present() }
			for round, encoding := range []string{"", "", "gzip", "gzip"} {
				resp, got := e.fetch(t, path+form.query, form.accept, "Accept-Encoding", encoding)
				if form.name == "metadata" && encoding == "" && len(got) > gzipThreshold && resp.ContentLength != int64(len(want)) {
					t.Errorf("%s %s: announced as %d bytes of %d", form.name, path, resp.ContentLength, len(want))
				}
				if got = plainText(t, resp, got); !bytes.Equal(got, want) {
					t.Errorf("%s %s %q, LIST %d: %d bytes instead of %d", form.name, path, encoding, round, len(got), len(want))
				}
			}
		}
	}
	if n := e.handler.pieces.Counts(); n.Hits < 100 || n.Pieces == 0 {
		t.Errorf("pieces are not used: %+v", n)
	}
	m := e.handler.listMetrics
	if n := testutil.ToFloat64(m.lists.WithLabelValues("pods", "json table", "true")); n != 8 {
		t.Errorf("%v compressed Tables are counted", n)
	}
	for _, v := range []*prometheus.CounterVec{m.objects, m.sent, m.encoding} {
		if testutil.ToFloat64(v.WithLabelValues("pods")) <= 0 {
			t.Error("a cost of LISTs is not counted")
		}
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(e.handler); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestPagesOfPacks: the pages of a LIST are the whole of it.
func TestPagesOfPacks(t *testing.T) {
	const pods = 300
	s := packedPods(t, pods)
	change(t, s, pods)
	e := newEndpoint(t)
	e.pods.packed = func() cache.Snapshot { return s.Present() }
	all := fetchJSON[metav1.PartialObjectMetadataList](t, e, "/api/v1/pods", partialJSON, http.StatusOK)
	for _, limit := range []int{1, 7, 16, 100, 299, 300, 2001} {
		var got []string
		token := ""
		for {
			page := fetchJSON[metav1.PartialObjectMetadataList](t, e, fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", limit, token), partialJSON, http.StatusOK)
			for _, item := range page.Items {
				got = append(got, item.Namespace+"/"+item.Name)
			}
			token = page.Continue
			if left := len(all.Items) - len(got); (token != "") != (left > 0) || token != "" && (len(page.Items) != limit || *page.RemainingItemCount != int64(left)) {
				t.Fatalf("limit %d: %d items, %d left, continue %q, %v", limit, len(page.Items), left, token, page.RemainingItemCount)
			}
			if token == "" {
				break
			}
		}
		for i, item := range all.Items {
			if i >= len(got) || got[i] != item.Namespace+"/"+item.Name {
				t.Fatalf("limit %d: item %d is another one", limit, i)
			}
		}
	}
}

func BenchmarkList(b *testing.B) {
	const n = 5000
	e := newEndpoint(b)
	s := packedPods(b, n)
	e.pods.packed = func() cache.Snapshot { return s.Present() }
	server := chain(e.handler)
	for _, form := range listForms() {
		for _, encoding := range []string{"", "gzip"} {
			b.Run(form.name+encoding, func(b *testing.B) {
				r := httptest.NewRequest(http.MethodGet, "/api/v1/pods"+form.query, nil)
				r.Header.Set("Accept", form.accept)
				r.Header.Set("Accept-Encoding", encoding)
				size := 0
				b.ReportAllocs()
				start := cpuTime(b)
				for b.Loop() {
					w := &discardWriter{header: http.Header{}}
					server.ServeHTTP(w, r)
					size = w.n
				}
				b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/n, "cpu-ns/object")
				b.ReportMetric(float64(size)/n, "bytes/object")
			})
		}
	}
}

// cpuTime is what the process has used, in nanoseconds: the collector's too.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
