package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// writer commits changes of keys with consecutive RVs.
type writer struct {
	*Store
	rv uint64
}

func newWriter(limits Limits) *writer {
	return &writer{Store: New(100, limits, clock.RealClock{}, &pack.Packer{Arena: arena.NewPoisoned()}), rv: 100}
}

func object(key string, rv uint64, size int) *cache.Object {
	return &cache.Object{Key: cache.Key{Name: key}, RV: rv, Cluster: "m", Body: cache.Bytes(make([]byte, size))}
}

func (w *writer) set(key string, size int) {
	w.rv++
	o := object(key, w.rv, size)
	e := &cache.Event{Type: cache.Added, Object: o, RV: w.rv, Time: time.Now()}
	if prev, ok := w.At(o.Key); ok {
		e.Type, e.Prev = cache.Modified, prev
	}
	w.Commit(e)
	w.Publish()
}

func (w *writer) remove(key string) {
	w.rv++
	prev, _ := w.At(cache.Key{Name: key})
	w.Commit(&cache.Event{Type: cache.Deleted, Object: object(key, w.rv, 1), Prev: prev, RV: w.rv, Time: time.Now()})
	w.Publish()
}

func keys(s *Snapshot) (out string) {
	s.Ascend(cache.Key{}, func(o *cache.Object) bool {
		out += fmt.Sprintf("%s@%d ", o.Key.Name, o.RV)
		return true
	})
	return out
}

var small = Limits{Bytes: 1 << 20, Age: time.Minute}

func TestExactUndoesHistory(t *testing.T) {
	w := newWriter(small)
	want := map[uint64]string{100: ""}
	for i := range 300 {
		switch k := fmt.Sprint("k", i%7); i % 5 {
		case 4:
			if _, ok := w.At(cache.Key{Name: k}); ok {
				w.remove(k)
			}
		default:
			w.set(k, 10)
		}
		want[w.rv] = keys(w.Present())
	}
	for _, rv := range rand.Perm(len(want)) {
		snap, err := w.Snapshot(t.Context(), cache.Version{Match: cache.Exact, RV: uint64(rv) + 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := keys(snap); got != want[snap.RV()] || snap.RV() != uint64(rv)+100 {
			t.Errorf("at %d: %s, not %s", rv+100, got, want[uint64(rv)+100])
		}
	}
}

func TestSnapshotVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(small)
		w.set("a", 1)
		for _, tc := range []struct {
			at   cache.Version
			err  error
			wait time.Duration
		}{
			{cache.Version{}, nil, 0},
			{cache.Version{Match: cache.Any}, nil, 0},
			{cache.Version{Match: cache.NotOlderThan, RV: 101}, nil, 0},
			{cache.Version{Match: cache.NotOlderThan, RV: 1}, nil, 0},
			{cache.Version{Match: cache.NotOlderThan, RV: 102}, cache.ErrTooNew, WaitAhead},
			{cache.Version{Match: cache.Exact, RV: 102}, cache.ErrTooNew, WaitAhead},
			{cache.Version{Match: cache.Exact, RV: 100}, nil, 0},
			{cache.Version{Match: cache.Exact, RV: 99}, cache.ErrExpired, 0},
		} {
			start := time.Now()
			_, err := w.Snapshot(t.Context(), tc.at)
			if !errors.Is(err, tc.err) || time.Since(start) != tc.wait {
				t.Errorf("%+v: %v after %s", tc.at, err, time.Since(start))
			}
			_, getErr := w.Get(t.Context(), cache.Key{Name: "a"}, tc.at)
			if tc.at.RV == 100 {
				tc.err = cache.ErrNotFound
			}
			if !errors.Is(getErr, tc.err) {
				t.Errorf("Get at %+v: %v", tc.at, getErr)
			}
		}
		time.AfterFunc(time.Second, func() { w.set("b", 1) })
		if snap, err := w.Snapshot(t.Context(), cache.Version{Match: cache.NotOlderThan, RV: 102}); err != nil || snap.RV() != 102 {
			t.Errorf("reached while waiting: %v", err)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(small)
		w.set("a", 1)
		first := w.rv
		for range 5000 {
			w.set("a", 2000)
		}
		h := w.History()
		if h.Bytes > small.Bytes || h.Bytes < small.Bytes/2 {
			t.Errorf("%d bytes of history, the limit is %d", h.Bytes, small.Bytes)
		}
		if _, err := w.Watch(t.Context(), first); !errors.Is(err, cache.ErrExpired) {
			t.Errorf("watch from the first event: %v", err)
		}
		if _, err := w.Watch(t.Context(), h.From-1); !errors.Is(err, cache.ErrExpired) {
			t.Errorf("watch from before the history: %v", err)
		}
		if _, err := w.Watch(t.Context(), h.From); err != nil {
			t.Errorf("watch from its beginning: %v", err)
		}
		time.Sleep(small.Age + time.Second)
		w.Trim()
		if h := w.History(); h.Bytes != 0 || h.From != w.rv {
			t.Errorf("old history is kept: %+v", h)
		}
		if _, err := w.Watch(t.Context(), w.rv); err != nil {
			t.Errorf("watch from now: %v", err)
		}
		w.set("b", 1)
		if h := w.History(); h.From != w.rv-1 {
			t.Errorf("history after a pause: %+v", h)
		}
	})
}

func TestWatchFromEveryRV(t *testing.T) {
	w := newWriter(small)
	for i := range 600 {
		w.set(fmt.Sprint("k", i%3), 5)
	}
	for from := uint64(100); from < w.rv; from++ {
		c, err := w.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for next := from + 1; next <= w.rv; {
			events, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.RV != next {
					t.Fatalf("from %d: event %d where %d is next", from, e.RV, next)
				}
				next++
			}
			if c.Progress() != next-1 {
				t.Fatalf("from %d: progress %d, read up to %d", from, c.Progress(), next-1)
			}
		}
	}
}

func TestSlowWatcherExpires(t *testing.T) {
	w := newWriter(small)
	c, err := w.Watch(t.Context(), w.rv)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		w.set("a", 2000)
	}
	if _, err := c.Next(t.Context()); !errors.Is(err, cache.ErrExpired) {
		t.Errorf("%v", err)
	}
	if w.History().Expired != 1 {
		t.Errorf("counted %d", w.History().Expired)
	}
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(small)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := w.Watch(ctx, w.rv)
		if err != nil {
			t.Fatal(err)
		}
		if w.History().Watchers != 1 {
			t.Error("watcher is not counted")
		}
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		synctest.Wait()
		if w.History().Watchers != 0 {
			t.Error("watcher is still counted")
		}
		time.AfterFunc(time.Second, w.Close)
		if _, err := c.Next(t.Context()); !errors.Is(err, cache.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := w.Watch(t.Context(), w.rv); !errors.Is(err, cache.ErrClosed) {
			t.Errorf("watch of a closed store: %v", err)
		}
	})
}

// TestReadersBesideWriter is for the race detector.
func TestReadersBesideWriter(t *testing.T) {
	w := newWriter(Limits{Bytes: 16 << 20, Age: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		c, err := w.Watch(ctx, w.rv)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			last := uint64(100)
			for last < 2100 {
				events, err := c.Next(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range events {
					if e.RV != last+1 {
						t.Errorf("%d after %d", e.RV, last)
					}
					last = e.RV
					_, _ = e.Memo.Encoded("x", func() ([]byte, error) { return []byte("x"), nil })
				}
				keys(w.Present())
			}
		})
	}
	for i := range 2000 {
		w.set(fmt.Sprint("k", i%50), 10)
		if i%100 == 0 {
			w.Trim()
		}
	}
	wg.Wait()
	cancel()
}

// TestPackedBesideWriter packs while objects change: readers see each change
// and no older state after it.
func TestPackedBesideWriter(t *testing.T) {
	w := newWriter(Limits{Bytes: 16 << 20, Age: time.Minute})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				w.PackAll()
				runtime.GC() // what was replaced is poisoned
			}
		}
	})
	wg.Go(func() {
		last := map[string]uint64{}
		for {
			select {
			case <-done:
				return
			default:
			}
			w.Present().Ascend(cache.Key{}, func(o *cache.Object) bool {
				if o.RV < last[o.Key.Name] || len(o.Raw()) != 10+int(o.RV%50) || o.Raw()[0] != 0 {
					t.Errorf("%s at %d after %d", o.Key, o.RV, last[o.Key.Name])
				}
				last[o.Key.Name] = o.RV
				return true
			})
		}
	})
	for i := range 1000 {
		key := fmt.Sprint("k", i%70)
		w.set(key, 10+int((w.rv+1)%50))
		if o, ok := w.At(cache.Key{Name: key}); !ok || o.RV != w.rv {
			t.Fatalf("%s is not at %d", key, w.rv)
		}
		if i%7 == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		if other := fmt.Sprint("k", (i+35)%70); i > 70 {
			if o, ok := w.At(cache.Key{Name: other}); !ok || o.RV != w.rv-35 {
				t.Fatalf("%s is at %d, not %d", other, o.RV, w.rv-35)
			}
		}
	}
	close(done)
	wg.Wait()
}

// TestRestoreKeepsNothing: what is read from a file is read into one buffer, and
// nothing that is kept refers to it.
func TestRestoreKeepsNothing(t *testing.T) {
	w := newWriter(Limits{Bytes: 1 << 20, Age: time.Minute})
	for i := range 100 {
		w.set(fmt.Sprintf("k%03d", i), 10)
	}
	w.PackAll()
	dump := w.Dump()
	restored := newWriter(Limits{Bytes: 1 << 20, Age: time.Minute})
	r := restored.Restore(dump.Head, dump.From)
	frames := 0
	if err := dump.Objects(func(b []byte) error {
		frames++
		err := r.Objects(b)
		for i := range b {
			b[i] = 'x'
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.Done(dump.Head, dump.Head+1, nil)
	if got, want := keys(restored.Present()), keys(w.Present()); got != want || frames < 2 {
		t.Errorf("%d frames: %s instead of %s", frames, got, want)
	}
	if n := restored.Stats().Objects; len(n) != 1 || n["m"] != 100 {
		t.Errorf("objects %v", n)
	}
}

func BenchmarkFanOut(b *testing.B) {
	w := newWriter(DefaultLimits)
	cursors := make([]*Cursor, 1000)
	for i := range cursors {
		cursors[i], _ = w.Watch(b.Context(), w.rv)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.set("a", 100)
		for _, c := range cursors {
			if _, err := c.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
}
