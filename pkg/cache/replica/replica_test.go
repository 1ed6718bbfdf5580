package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

var widgets = cachetest.Widgets.GroupVersionResource

// lease is who leads, as all sites see it but for those that are cut off.
type lease struct {
	mu      sync.Mutex
	address string
	epoch   uint64
}

func (l *lease) give(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = address
	l.epoch++
}

var errNotHere = errors.New("another leads")

// site is one replica.
type site struct {
	t        *testing.T
	lease    *lease
	cache    *membercache.Cache
	numbers  *sequence.Clock
	server   *httptest.Server
	follower *Follower
	cut      atomic.Bool // it hears nobody
	stop     func()      // of everything
	unfollow func()
}

func (s *site) address() string { return strings.TrimPrefix(s.server.URL, "https://") }

func (s *site) Leading() (uint64, error) {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	if s.lease.address != s.address() || s.cache.Following() {
		return 0, errNotHere
	}
	return s.lease.epoch, nil
}

func (s *site) Holds() error {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	if s.lease.address != s.address() {
		return errNotHere
	}
	return nil
}

func (s *site) Leader() (string, uint64) {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	if s.cut.Load() {
		return "", s.lease.epoch
	}
	return s.lease.address, s.lease.epoch
}

func (s *site) Present(ctx context.Context, gvr schema.GroupVersionResource) (uint64, error) {
	return s.follower.Present(ctx, gvr)
}

func (s *site) Behind() (time.Time, string, bool) {
	if !s.cache.Following() {
		return time.Time{}, "", false
	}
	return s.follower.Behind()
}

func newSite(t *testing.T, l *lease, dir string) *site {
	t.Helper()
	s := &site{t: t, lease: l}
	s.numbers = sequence.New(clock.RealClock{}, func() bool { return s.Holds() == nil })
	var server atomic.Pointer[Server]
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Load().ServeHTTP(w, r) }))
	var err error
	s.cache, err = membercache.New(membercache.Config{
		Clock: s.numbers, Dir: dir, Resources: []cache.Resource{cachetest.Widgets}, Replica: s, Pending: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Store(&Server{Cache: s.cache, Roles: s, Ready: s.cache.Loaded})
	s.follower = NewFollower(s.cache, s, s.server.Client(), clock.RealClock{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.cache.Run(ctx) })
	following, unfollow := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); s.follower.Run(following) }()
	s.unfollow = func() { unfollow(); <-ended }
	s.stop = sync.OnceFunc(func() {
		s.server.CloseClientConnections()
		s.unfollow()
		cancel()
		wg.Wait()
		s.server.CloseClientConnections()
		s.server.Close()
	})
	t.Cleanup(s.stop)
	return s
}

// lead makes the site the one that numbers the events of some members.
func (s *site) lead(numbers sequence.Reservation, members map[cache.ClusterName]string) {
	s.t.Helper()
	s.lease.give(s.address())
	s.unfollow()
	if err := s.numbers.Start(s.t.Context(), numbers, s.cache.LastHead(), nil); err != nil {
		s.t.Fatal(err)
	}
	s.cache.Lead()
	var all []cache.ClusterName
	for i, name := range []cache.ClusterName{"m1", "m2"} {
		source := membercache.Source{Name: name, UID: "uid-" + uid(name), Order: i, Config: &rest.Config{Host: members[name]}, EverSynced: true}
		if err := s.cache.SetSource(source); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, name)
	}
	s.cache.Complete(all...)
}

func (s *site) col() cache.Collection {
	col, _ := s.cache.Collection(widgets)
	return col
}

func (s *site) head() uint64 {
	head, err := s.cache.Head(widgets)
	if err != nil {
		s.t.Fatal(err)
	}
	return head
}

func (s *site) content(at cache.Version) cachetest.Content {
	s.t.Helper()
	snap, err := s.col().Snapshot(s.t.Context(), at)
	if err != nil {
		s.t.Fatal(err)
	}
	content, err := cachetest.Read(cachetest.Widgets, snap)
	if err != nil {
		s.t.Fatal(err)
	}
	return content
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// play is two members, and how often they were read anew.
type play struct {
	members map[cache.ClusterName]*cachetest.Member
	urls    map[cache.ClusterName]string
	fills   atomic.Int64
}

func uid(name cache.ClusterName) types.UID { return types.UID(name) }

func newPlay(t *testing.T) *play {
	t.Helper()
	p := &play{members: map[cache.ClusterName]*cachetest.Member{}, urls: map[cache.ClusterName]string{}}
	for _, name := range []cache.ClusterName{"m1", "m2"} {
		m := cachetest.NewMember("uid-" + uid(name))
		p.members[name] = m
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if strings.HasSuffix(r.URL.Path, "/widgets") && (q.Get("sendInitialEvents") == "true" || q.Get("watch") == "" && q.Get("limit") != "1") {
				p.fills.Add(1)
			}
			m.ServeHTTP(w, r)
		}))
		p.urls[name] = server.URL
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	}
	return p
}

func (p *play) change(from, to int) {
	for i := from; i < to; i++ {
		for _, name := range []cache.ClusterName{"m1", "m2"} {
			p.members[name].Set(fmt.Sprint("w", i%40))
			if i%7 == 0 {
				p.members[name].Remove(fmt.Sprint("w", (i+3)%40))
			}
		}
	}
}

// same waits until a follower has what the leader has, then compares all of it.
func same(t *testing.T, leader, follower *site) {
	t.Helper()
	eventually(t, "the follower is at the leader's head", func() bool {
		return leader.head() > 0 && leader.head() == follower.head() && follower.cache.Loaded() == nil
	})
	at := cache.Version{Match: cache.Exact, RV: follower.head()} // members may go on
	if err := cachetest.Same(follower.content(at), leader.content(at)); err != nil {
		t.Fatal(err)
	}
}

// A replica that follows serves the same bytes under the same RVs, takes over
// without reading a member anew, and its watches go on.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	p, l, numbers := newPlay(t), &lease{}, &sequence.Memory{}
	a, b := newSite(t, l, ""), newSite(t, l, "")
	p.change(0, 60)
	a.lead(numbers, p.urls)
	eventually(t, "the leader is loaded", func() bool { return len(a.col().Gaps()) == 0 })
	same(t, a, b)
	past := a.head()
	then := a.content(cache.Version{Match: cache.Exact, RV: past})
	p.change(60, 90)
	eventually(t, "a change arrives", func() bool { return a.head() > past })
	if rv := a.head(); true {
		snap, err := b.col().Snapshot(t.Context(), cache.Version{})
		if err != nil || snap.RV() < rv {
			t.Fatalf("a read at the follower is of %v, %v; the leader was at %d", snap, err, rv)
		}
	}
	if err := cachetest.Same(b.content(cache.Version{Match: cache.Exact, RV: past}), then); err != nil {
		t.Fatalf("an earlier moment: %v", err)
	}
	snap, err := b.col().Snapshot(t.Context(), cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := cachetest.NewMirror(t.Context(), b.col(), snap)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 { // aliases are known to the follower
		name := fmt.Sprint("w", i)
		for _, m := range []cache.ClusterName{"m1", "m2"} {
			want, ok := a.col().FindSource(m, "d", name)
			got, found := b.col().FindSource(m, "d", name)
			if ok != found || ok && want.Key != got.Key {
				t.Fatalf("%s of %s: %v %v, the leader has %v %v", name, m, got, found, want, ok)
			}
		}
	}
	same(t, a, b)
	a.stop()
	fills, last := p.fills.Load(), b.head()
	p.change(90, 130)
	b.lead(numbers, p.urls)
	if _, err := b.col().Watch(t.Context(), last+1); !errors.Is(err, cache.ErrExpired) {
		t.Errorf("a watch from an RV of which nobody knows: %v", err)
	}
	if _, err := b.col().Watch(t.Context(), last); err != nil {
		t.Errorf("a watch from the last RV that was replicated: %v", err)
	}
	eventually(t, "the members are followed", func() bool { return len(b.col().Gaps()) == 0 })
	p.members["m1"].Set("last")
	eventually(t, "the last change", func() bool { _, ok := b.col().FindSource("m1", "d", "last"); return ok })
	p.members["m2"].Set("last")
	eventually(t, "the last change", func() bool { _, ok := b.col().FindSource("m2", "d", "last"); return ok })
	if n := p.fills.Load() - fills; n != 0 {
		t.Errorf("members were read anew %d times", n)
	}
	head := b.head()
	if err := mirror.CatchUp(t.Context(), head); err != nil {
		t.Errorf("a watch of before: %v", err)
	}
	if err := mirror.Equal(b.content(cache.Version{Match: cache.Exact, RV: head})); err != nil {
		t.Error(err)
	}
	c := newSite(t, l, "")
	same(t, b, c)
}

// A leader that stamped what nobody has heard comes back as a follower: what it
// had alone goes, and its RVs are expired everywhere.
func TestForkIsDropped(t *testing.T) {
	t.Parallel()
	p, l, numbers := newPlay(t), &lease{}, &sequence.Memory{}
	dir := t.TempDir()
	a, b := newSite(t, l, dir), newSite(t, l, "")
	p.change(0, 30)
	a.lead(numbers, p.urls)
	eventually(t, "the leader is loaded", func() bool { return len(a.col().Gaps()) == 0 })
	same(t, a, b)
	b.cut.Store(true)
	b.server.CloseClientConnections()
	a.server.CloseClientConnections()
	time.Sleep(20 * time.Millisecond)
	known := b.head()
	p.change(30, 60)
	eventually(t, "events of which nobody hears", func() bool { return a.head() > known })
	alone := a.head()
	a.stop()
	b.cut.Store(false)
	b.lead(numbers, p.urls)
	eventually(t, "the members are followed", func() bool { return len(b.col().Gaps()) == 0 })
	if known = b.head(); known <= alone {
		t.Fatalf("the new leader is at %d, the old one was at %d", known, alone)
	}
	again := newSite(t, l, dir)
	same(t, b, again)
	if _, err := again.col().Watch(t.Context(), alone); !errors.Is(err, cache.ErrExpired) {
		t.Errorf("a watch from an RV of the fork: %v", err)
	}
}

// What is said in an epoch that is over is not taken.
func TestEarlierEpoch(t *testing.T) {
	t.Parallel()
	p, l, numbers := newPlay(t), &lease{}, &sequence.Memory{}
	a, b := newSite(t, l, ""), newSite(t, l, "")
	p.change(0, 10)
	a.lead(numbers, p.urls)
	eventually(t, "the leader is loaded", func() bool { return len(a.col().Gaps()) == 0 })
	same(t, a, b)
	if err := b.follower.current(l.epoch - 1); !errors.Is(err, errEpoch) {
		t.Errorf("an earlier epoch: %v", err)
	}
	l.give("nobody:1")
	if _, err := b.follower.Present(t.Context(), widgets); err == nil {
		t.Error("an answer of an earlier epoch was taken")
	}
	before := b.head()
	p.change(10, 20)
	time.Sleep(50 * time.Millisecond)
	if now := b.head(); now != before {
		t.Errorf("events of an earlier epoch were taken: %d after %d", now, before)
	}
	resp, err := a.server.Client().Get(a.server.URL + Prefix + headPath + nameOf(widgets))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("one that leads no more answers %s", resp.Status)
	}
}

// What was acknowledged by a leader that is cut off is read from the one that
// takes over, though it never came there; the other one answers nothing.
func TestReadsAfterTakeOver(t *testing.T) {
	t.Parallel()
	p, l, numbers := newPlay(t), &lease{}, &sequence.Memory{}
	a, b := newSite(t, l, ""), newSite(t, l, "")
	p.change(0, 30)
	a.lead(numbers, p.urls)
	eventually(t, "the leader is loaded", func() bool { return len(a.col().Gaps()) == 0 })
	same(t, a, b)
	b.cut.Store(true)
	a.server.CloseClientConnections()
	p.members["m1"].Set("acknowledged")
	eventually(t, "the leader has the change", func() bool { _, ok := a.col().FindSource("m1", "d", "acknowledged"); return ok })
	key := cache.Key{Namespace: "d", Name: "acknowledged"}
	read := make(chan error, 1)
	go func() { // it begins while nobody can say what is the latest
		_, err := b.col().Get(t.Context(), key, cache.Version{})
		read <- err
	}()
	time.Sleep(20 * time.Millisecond)
	b.cut.Store(false)
	b.lead(numbers, p.urls)
	if err := <-read; err != nil {
		t.Errorf("a read that began before the takeover: %v", err)
	}
	if _, err := b.col().Get(t.Context(), key, cache.Version{}); err != nil {
		t.Errorf("a read after the takeover: %v", err)
	}
	if _, err := a.col().Get(t.Context(), key, cache.Version{}); !errors.Is(err, cache.ErrElsewhere) {
		t.Errorf("a read at the one that was cut off: %v", err)
	}
}
