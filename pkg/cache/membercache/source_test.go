package membercache

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// fleet is a cache of widgets over members to play with.
type fleet struct {
	t     *testing.T
	cache *Cache
	col   cache.Collection
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	seq, err := sequence.Open(t.Context(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq, Resources: []cache.Resource{cachetest.Widgets}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	col, _ := c.Collection(cachetest.Widgets.GroupVersionResource)
	return &fleet{t, c, col}
}

func serve(t *testing.T, m *cachetest.Member) *rest.Config {
	t.Helper()
	s := httptest.NewServer(m)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return &rest.Config{Host: s.URL}
}

func (f *fleet) join(name cache.ClusterName, uid types.UID, order int, config *rest.Config) {
	f.t.Helper()
	if err := f.cache.SetSource(Source{Name: name, UID: uid, Order: order, Config: config, EverSynced: true}); err != nil {
		f.t.Fatal(err)
	}
}

// content is "name=uid ..." in key order.
func (f *fleet) content() string {
	snap, err := f.col.Snapshot(f.t.Context(), cache.Version{})
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	snap.Ascend(cache.Key{}, func(o *cache.Object) bool {
		uid := string(o.UID)
		all = append(all, fmt.Sprintf("%s=%s", o.Key.Name, uid[:strings.LastIndex(uid, "-")]))
		return true
	})
	return strings.Join(all, " ")
}

func (f *fleet) await(want string) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); f.content() != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("served %q, not %q; gaps %v", f.content(), want, f.col.Gaps())
		}
	}
}

func TestSources(t *testing.T) {
	f := newFleet(t)
	one, two := cachetest.NewMember("u1"), cachetest.NewMember("u2")
	one.Set("x")
	two.Set("x")
	two.Set("y")
	config2 := serve(t, two)
	f.join("m2", "u2", 2, config2)
	f.await("x=u2-x y=u2-y")
	f.join("m1", "u1", 1, serve(t, one))
	f.await("x=u1-x x.m2=u2-x y=u2-y")
	two.Set("z")
	one.Remove("x")
	f.await("x.m2=u2-x y=u2-y z=u2-z")

	// The same cluster under a second name is refused.
	err := f.cache.SetSource(Source{Name: "m2b", UID: "u2", Order: 3, Config: config2})
	if !errors.Is(err, ErrConfig) {
		t.Errorf("m2 as m2b: %v", err)
	}
	// Another cluster under the same name drops the old objects.
	three := cachetest.NewMember("u3")
	three.Set("y")
	f.join("m2", "u3", 2, serve(t, three))
	f.await("y=u3-y")
	f.cache.RemoveSource("m2")
	f.await("")
}

// Before the sources are known, no answer passes for a whole one.
func TestPendingSources(t *testing.T) {
	f := newFleet(t)
	col := f.cache.byResource[cachetest.Widgets.GroupVersionResource]
	col.SetPending(true)
	m := cachetest.NewMember("a")
	m.Set("x")
	f.join("a", "a", 1, serve(t, m))
	f.await("x=a-x")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var missing *cache.NotLoadedError
	if err := f.cache.AwaitLoaded(ctx, cachetest.Widgets.GroupVersionResource); !errors.As(err, &missing) || missing.Gaps[0].Cluster != cache.AllClusters {
		t.Errorf("before all are known: %v", err)
	}
	go f.cache.Complete()
	if err := f.cache.AwaitLoaded(t.Context(), cachetest.Widgets.GroupVersionResource); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A source that cannot be fed yet is not omitted in silence: what was synced
// once is waited for, what never was is named.
func TestExpectedSource(t *testing.T) {
	f := newFleet(t)
	why := errors.New("no credentials")
	f.cache.Expect("new", 1, false, why)
	gaps := f.col.Gaps()
	if len(gaps) != 1 || gaps[0].Kind != cache.NeverSynced || gaps[0].Cluster != "new" || gaps[0].Reason != why.Error() {
		t.Errorf("gaps of a source that never synced: %v", gaps)
	}
	f.await("")
	f.cache.Expect("old", 2, true, why)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var missing *cache.NotLoadedError
	if err := f.cache.AwaitLoaded(ctx, cachetest.Widgets.GroupVersionResource); !errors.As(err, &missing) || len(missing.Gaps) != 1 || missing.Gaps[0].Cluster != "old" {
		t.Errorf("waiting for a source that was synced once: %v", err)
	}
	f.cache.RemoveSource("old")
	f.cache.RemoveSource("new")
	if gaps := f.col.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps after both left: %v", gaps)
	}
	// One that comes to life is fed, and is not made less by a later expectation.
	m := cachetest.NewMember("a")
	m.Set("x")
	f.cache.Expect("a", 1, false, why)
	f.join("a", "a", 1, serve(t, m))
	f.await("x=a-x")
	f.cache.Expect("a", 1, false, why)
	if gaps := f.col.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps of a source that is fed: %v", gaps)
	}
}

// TestAnotherClusterAnswers: what a foreign cluster has is not taken in, and
// what the true one had stays.
func TestAnotherClusterAnswers(t *testing.T) {
	f := newFleet(t)
	own, foreign := cachetest.NewMember("u1"), cachetest.NewMember("u9")
	own.Set("x")
	foreign.Set("other")
	f.join("m1", "u1", 1, serve(t, own))
	f.await("x=u1-x")
	f.join("m1", "u1", 1, serve(t, foreign))
	for deadline := time.Now().Add(20 * time.Second); len(f.col.Gaps()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no gap is shown")
		}
	}
	if gap := f.col.Gaps()[0]; gap.Kind != cache.Stale || !strings.Contains(gap.Reason, "another cluster answers") {
		t.Errorf("gap %v", gap)
	}
	f.await("x=u1-x")
	if err := f.col.AwaitFresh(t.Context()); !errors.Is(err, ErrIdentity) {
		t.Errorf("AwaitFresh: %v", err)
	}
	own.Set("y")
	f.join("m1", "u1", 1, serve(t, own))
	f.await("x=u1-x y=u1-y")
}

// TestOutageIsADifference: a watcher goes through an outage of a member with
// nothing but what has changed.
func TestOutageIsADifference(t *testing.T) {
	f := newFleet(t)
	one, two := cachetest.NewMember("u1"), cachetest.NewMember("u2")
	for _, n := range []string{"a", "b", "c"} {
		two.Set(n)
	}
	f.join("m1", "u1", 1, serve(t, one))
	f.join("m2", "u2", 2, serve(t, two))
	f.await("a=u2-a b=u2-b c=u2-c")
	snap, err := f.col.Snapshot(t.Context(), cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := f.col.Watch(t.Context(), snap.RV())
	if err != nil {
		t.Fatal(err)
	}
	two.Break(true)
	for len(f.col.Gaps()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	two.Remove("a")
	two.Set("c")
	two.Set("d")
	one.Set("e")
	f.await("a=u2-a b=u2-b c=u2-c e=u1-e")
	two.Break(false)
	f.await("b=u2-b c=u2-c d=u2-d e=u1-e")
	var got []string
	for len(got) < 4 {
		events, err := watcher.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, fmt.Sprintf("%d%s", e.Type, e.Object.Key.Name))
		}
	}
	if want := "[0e 2a 1c 0d]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, not %s", got, want)
	}
	if err := f.col.AwaitFresh(t.Context()); err != nil {
		t.Errorf("AwaitFresh: %v", err)
	}
	two.Break(true)
	if err := f.col.AwaitFresh(t.Context()); err == nil || !strings.Contains(err.Error(), "m2") || strings.Contains(err.Error(), "m1") {
		t.Errorf("AwaitFresh in an outage: %v", err)
	}
}

// TestCompare: what the cache does not have as its source has it is found, and
// nothing else.
func TestCompare(t *testing.T) {
	f := newFleet(t)
	one, two := cachetest.NewMember("u1"), cachetest.NewMember("u2")
	for _, n := range []string{"a", "b", "c"} {
		one.Set(n)
		two.Set(n)
	}
	f.join("m1", "u1", 1, serve(t, one))
	f.join("m2", "u2", 2, serve(t, two))
	f.await("a=u1-a a.m2=u2-a b=u1-b b.m2=u2-b c=u1-c c.m2=u2-c")
	if found, err := f.cache.Compare(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("what is equal differs: %v, %v", found, err)
	}
	two.Tamper("a", "b", "d")
	found, err := f.cache.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range found {
		got = append(got, d.String())
	}
	slices.Sort(got)
	if want := `[widgets d/a of "m2": RV 4 there, 2 here widgets d/b of "m2": RV 0 there, 3 here widgets d/d of "m2": RV 1 there, 0 here]`; fmt.Sprint(got) != want {
		t.Errorf("differences %s instead of %s", got, want)
	}
	for cluster, want := range map[string]float64{"m1": 0, "m2": 3} {
		if n := testutil.ToFloat64(f.cache.counters.different.WithLabelValues(cluster, "widgets")); n != want {
			t.Errorf("%v different objects of %s are told", n, cluster)
		}
	}
	two.Set("e") // what is here is not touched by it
	f.await("a=u1-a a.m2=u2-a b=u1-b b.m2=u2-b c=u1-c c.m2=u2-c e=u2-e")
}

func TestInvalidSources(t *testing.T) {
	f := newFleet(t)
	for _, s := range []Source{
		{Name: "a.b", Config: &rest.Config{}},
		{Name: cache.ClusterName(strings.Repeat("x", 49)), Config: &rest.Config{}},
		{Name: "ok"},
	} {
		if err := f.cache.SetSource(s); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", s.Name, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	f := newFleet(t)
	m := cachetest.NewMember("u1")
	m.Set("x")
	f.join("m1", "u1", 1, serve(t, m))
	f.await("x=u1-x")
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(f.cache); err != nil {
		t.Fatal(err)
	}
	got, err := testutil.GatherAndCount(registry, "isthmus_cache_objects", "isthmus_cache_source_connected", "isthmus_cache_feed_relists_total", "isthmus_cache_watchers")
	if err != nil {
		t.Fatal(err)
	}
	// The feeds of managed copies count their relists as well.
	if got < 4 {
		t.Errorf("%d metrics", got)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
