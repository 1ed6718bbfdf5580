package membercache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// bubble is a fixture on the clock of a synctest bubble.
func bubble(t *testing.T) *fixture {
	t.Helper()
	seq, err := sequence.Open(t.Context(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, cache: c}
}

func podAt(rv, label string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("p", "uid-p", rv)}
	p.Labels = map[string]string{"v": label}
	return p
}

func bytesOf(t *testing.T, obj marshaler) []byte {
	t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestObserve(t *testing.T) {
	type call struct {
		rv  uint64
		raw *corev1.Pod
	}
	cases := map[string]struct {
		before, during []func(*fixture, *sinkOf)
		call           call
		label          string // "" where the object is gone
		after          []func(*fixture, *sinkOf)
		finally        string
		waits          time.Duration
	}{
		"the feed has it": {
			before: []func(*fixture, *sinkOf){putPod("5", "new")},
			call:   call{5, podAt("5", "new")}, label: "new", finally: "new",
		},
		"others have changed it since": {
			before: []func(*fixture, *sinkOf){putPod("5", "mine"), putPod("6", "theirs"), putPod("7", "last")},
			call:   call{6, podAt("6", "theirs")}, label: "theirs", finally: "last",
		},
		"its own event was never seen": {
			before: []func(*fixture, *sinkOf){putPod("5", "old"), putPod("8", "last")},
			call:   call{7, podAt("7", "skipped")}, label: "last", finally: "last",
		},
		"a no-op": {
			before: []func(*fixture, *sinkOf){putPod("5", "old"), progress("9")},
			call:   call{5, podAt("5", "old")}, label: "old", finally: "old",
		},
		"the feed brings it": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			during: []func(*fixture, *sinkOf){putPod("6", "new")},
			call:   call{6, podAt("6", "new")}, label: "new", finally: "new", waits: 100 * time.Millisecond,
		},
		"the feed is late": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){putPod("6", "between"), putPod("7", "new")}, finally: "new",
		},
		"the feed is behind for longer": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){putPod("6", "between")}, finally: "new",
		},
		"and goes on": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){putPod("6", "between"), putPod("7", "new"), putPod("8", "newer")}, finally: "newer",
		},
		"deleted before the feed was late": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){putPod("6", "x"), putPod("7", "new"), del("8")}, finally: "",
		},
		"already deleted": {
			before: []func(*fixture, *sinkOf){putPod("5", "old"), del("8")},
			call:   call{7, podAt("7", "new")}, label: "", finally: "",
		},
		"deleted while it waits": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			during: []func(*fixture, *sinkOf){del("8")},
			call:   call{7, podAt("7", "new")}, label: "", finally: "", waits: 100 * time.Millisecond,
		},
		"read anew without it": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){empty("9")}, finally: "",
		},
		"read anew at an older moment": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, podAt("7", "new")}, label: "new", waits: time.Second,
			after: []func(*fixture, *sinkOf){empty("6")}, finally: "new",
		},
		"nothing to put in": {
			before: []func(*fixture, *sinkOf){putPod("5", "old")},
			call:   call{7, nil}, label: "old", finally: "old", waits: time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := bubble(t)
				s := &sinkOf{f.sink("m1", Pods)}
				for _, do := range tc.before {
					do(f, s)
				}
				time.AfterFunc(100*time.Millisecond, func() {
					for _, do := range tc.during {
						do(f, s)
					}
				})
				var raw []byte
				if tc.call.raw != nil {
					raw = bytesOf(t, tc.call.raw)
				}
				col := f.cache.byResource[Pods.GroupVersionResource]
				start := time.Now()
				o, err := col.Observe(t.Context(), "m1", "d", "p", tc.call.rv, raw)
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got != tc.waits {
					t.Errorf("waited %s, not %s", got, tc.waits)
				}
				if got := labelOf(o); got != tc.label {
					t.Errorf("observed %q, not %q", got, tc.label)
				}
				for _, do := range tc.after {
					do(f, s)
				}
				o, _ = col.FindSource("m1", "d", "p")
				if got := labelOf(o); got != tc.finally {
					t.Errorf("finally %q, not %q", got, tc.finally)
				}
			})
		})
	}
}

func labelOf(o *cache.Object) string {
	if o == nil {
		return ""
	}
	return o.Labels.Get("v")
}

// sinkOf is the sink of the member's Pods.
type sinkOf struct{ feed.Sink }

func putPod(rv, label string) func(*fixture, *sinkOf) {
	return func(f *fixture, s *sinkOf) {
		if err := s.Put(bytesOf(f.t, podAt(rv, label))); err != nil {
			f.t.Error(err)
		}
		s.Flush()
	}
}

func del(rv string) func(*fixture, *sinkOf) {
	return func(f *fixture, s *sinkOf) {
		if err := s.Delete(bytesOf(f.t, podAt(rv, "last"))); err != nil {
			f.t.Error(err)
		}
		s.Flush()
	}
}

func progress(rv string) func(*fixture, *sinkOf) {
	return func(_ *fixture, s *sinkOf) { s.Progress(rv); s.Flush() }
}

func empty(rv string) func(*fixture, *sinkOf) {
	return func(_ *fixture, s *sinkOf) { s.Begin(); s.End(rv) }
}

func TestObserveDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bubble(t)
		s := &sinkOf{f.sink("m1", Pods)}
		putPod("5", "x")(f, s)
		col := f.cache.byResource[Pods.GroupVersionResource]
		if err := col.ObserveDeleted(t.Context(), "m1", "d", "p", "uid-p"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it is there: %v", err)
		}
		if err := col.ObserveDeleted(t.Context(), "m1", "d", "p", "another"); err != nil {
			t.Errorf("of another: %v", err)
		}
		time.AfterFunc(50*time.Millisecond, func() { del("6")(f, s) })
		start := time.Now()
		if err := col.ObserveDeleted(t.Context(), "m1", "d", "p", "uid-p"); err != nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bubble(t)
		col := f.cache.byResource[Pods.GroupVersionResource]
		s := col.Join("m1", 1, true)
		col.Join("m2", 2, false)
		f.sink("m3", Pods)
		kinds := func() string {
			out := ""
			for _, g := range col.Gaps() {
				out += string(g.Cluster) + map[cache.GapKind]string{cache.Stale: " stale ", cache.NeverSynced: " never ", cache.NotLoaded: " not loaded "}[g.Kind]
			}
			return out
		}
		loaded := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return f.cache.AwaitLoaded(ctx, Pods.GroupVersionResource)
		}
		if got := kinds(); got != "m1 not loaded m2 never " {
			t.Errorf("at first: %s", got)
		}
		var notLoaded *cache.NotLoadedError
		if err := loaded(); !errors.As(err, &notLoaded) || len(notLoaded.Gaps) != 1 || notLoaded.Gaps[0].Cluster != "m1" {
			t.Errorf("not loaded: %v", err)
		}
		f.cache.SetAbsent("m1", true)
		if got := kinds(); got != "m1 never m2 never " || loaded() != nil {
			t.Errorf("absent: %s, %v", got, loaded())
		}
		f.cache.SetAbsent("m1", false)
		time.AfterFunc(500*time.Millisecond, func() { s.Begin(); s.End("4") })
		if err := loaded(); err != nil {
			t.Errorf("loaded while waiting: %v", err)
		}
		s.Disconnected(errors.New("cut"))
		if got := kinds(); got != "m1 stale m2 never " || loaded() != nil {
			t.Errorf("cut: %s", got)
		}
		s.Connected()
		if got := kinds(); got != "m2 never " {
			t.Errorf("back: %s", got)
		}
	})
}
