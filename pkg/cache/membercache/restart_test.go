package membercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// change is what happened to a Pod in a member.
type change struct {
	rv   uint64
	name string
	raw  []byte
	gone bool
}

// restarts is a cache that is killed and started anew over the same folder,
// beside members that go on.
type restarts struct {
	dir     string
	numbers *sequence.Memory
	cache   *Cache
	members map[cache.ClusterName][]change // everything that ever happened
	passed  map[cache.ClusterName]int      // how much of it the feed has brought
	rv      uint64
	past    map[uint64]cachetest.Content // what was there at an RV
	issued  []uint64
}

func (m *restarts) col() *collection { return m.cache.byResource[Pods.GroupVersionResource] }

func (m *restarts) source(n cache.ClusterName) *merge.Source {
	return m.col().Join(n, len(n)+int(n[1]), true)
}

func (m *restarts) start(t *rapid.T) {
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, m.numbers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.cache, err = New(Config{Clock: seq, Dir: m.dir, Resources: []cache.Resource{Pods}}); err != nil {
		t.Fatal(err)
	}
}

func (m *restarts) note(t *rapid.T) {
	content, err := cachetest.Read(Pods, m.col().Store().Present())
	if err != nil {
		t.Fatal(err)
	}
	head := m.col().Store().Head()
	m.past[head] = content
	m.issued = append(m.issued, head)
}

// happen changes a Pod in a member; the feed does not bring it yet.
func (m *restarts) happen(t *rapid.T) {
	n := rapid.SampledFrom([]cache.ClusterName{"m1", "m2"}).Draw(t, "member")
	name := fmt.Sprint("pod-", rapid.IntRange(0, 6).Draw(t, "pod"))
	all := m.members[n]
	uid := types.UID(fmt.Sprintf("%s-%s-%d", n, name, m.rv))
	there := false
	for _, c := range all {
		if c.name == name {
			there = !c.gone
			if there {
				var p corev1.Pod
				if err := p.Unmarshal(c.raw); err != nil {
					t.Fatal(err)
				}
				uid = p.UID
			}
		}
	}
	m.rv++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid, ResourceVersion: strconv.FormatUint(m.rv, 10), Labels: map[string]string{"v": fmt.Sprint(m.rv)}}}
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m.members[n] = append(all, change{m.rv, name, raw, there && rapid.IntRange(0, 2).Draw(t, "delete") == 0})
}

// follow brings some of what happened, as a watch does.
func (m *restarts) follow(t *rapid.T) {
	for _, n := range []cache.ClusterName{"m1", "m2"} {
		s := m.source(n)
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			if m.passed[n] == len(m.members[n]) {
				break
			}
			m.bring(t, s, m.members[n][m.passed[n]])
			m.passed[n]++
		}
	}
}

func (m *restarts) bring(t *rapid.T, s *merge.Source, c change) {
	var err error
	if c.gone {
		err = s.Delete(c.raw)
	} else {
		err = s.Put(c.raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Flush()
	m.note(t)
}

// relist reads a complete state of a member.
func (m *restarts) relist(t *rapid.T, n cache.ClusterName) {
	s := m.source(n)
	s.Begin()
	last := map[string]change{}
	for _, c := range m.members[n] {
		last[c.name] = c
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if c := last[name]; !c.gone {
			if err := s.Put(c.raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.End(strconv.FormatUint(m.rv, 10))
	m.passed[n] = len(m.members[n])
	m.note(t)
}

// observed puts in a write that the feed has not brought.
func (m *restarts) observed(t *rapid.T) {
	n := rapid.SampledFrom([]cache.ClusterName{"m1", "m2"}).Draw(t, "member")
	all := m.members[n]
	if m.passed[n] >= len(all) || all[len(all)-1].gone {
		t.Skip("nothing ahead")
	}
	c := all[len(all)-1]
	m.source(n)
	if err := m.col().Inject(n, "a", c.name, c.rv, c.raw); err != nil {
		t.Fatal(err)
	}
	m.note(t)
}

// kill starts anew, after the last bytes of the log were lost.
func (m *restarts) kill(t *rapid.T) {
	before := m.col().Store().Head()
	content := m.past[before]
	lost := rapid.IntRange(0, 3).Draw(t, "lost") == 0
	m.cache.known.release()
	if lost {
		m.tear(t)
	}
	m.start(t)
	store := m.col().Store()
	got, err := cachetest.Read(Pods, store.Present())
	if err != nil {
		t.Fatal(err)
	}
	names := m.col().Restored()
	if len(names) == 0 { // nothing was kept yet
		m.past, m.issued, m.passed = map[uint64]cachetest.Content{}, nil, map[cache.ClusterName]int{}
		m.relist(t, "m1")
		m.relist(t, "m2")
		return
	}
	if !lost {
		if err := cachetest.Same(got, content); err != nil {
			t.Fatalf("after a restart: %v", err)
		}
	}
	m.resume(t, got)
	for _, n := range []cache.ClusterName{"m1", "m2"} {
		from, _ := strconv.ParseUint(m.source(n).ResumePoint(), 10, 64)
		if from == 0 {
			m.relist(t, n)
			continue
		}
		m.passed[n] = 0
		for _, c := range m.members[n] {
			if c.rv <= from {
				m.passed[n]++
			}
		}
		m.source(n).Connected()
	}
	m.note(t)
}

// resume watches from every RV that was ever given out: it is expired, or what
// follows leads to what is there.
func (m *restarts) resume(t *rapid.T, now cachetest.Content) {
	store := m.col().Store()
	for i, rv := range m.issued {
		if i < len(m.issued)-3 && i%(1+len(m.issued)/4) != 0 {
			continue
		}
		snap, err := store.Snapshot(t.Context(), cache.Version{Match: cache.Exact, RV: rv})
		if errors.Is(err, cache.ErrExpired) {
			delete(m.past, rv)
			if _, err := store.Watch(t.Context(), rv); !errors.Is(err, cache.ErrExpired) {
				t.Fatalf("watch from %d: %v", rv, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := cachetest.Read(Pods, snap)
		if err != nil {
			t.Fatal(err)
		}
		if err := cachetest.Same(content, m.past[rv]); err != nil {
			t.Fatalf("at %d: %v", rv, err)
		}
		mirror, err := cachetest.NewMirror(t.Context(), m.col(), snap)
		if err != nil {
			t.Fatal(err)
		}
		last := rv
		if e := store.Past(1, func(*cache.Event) bool { return true }); e != nil {
			last = max(rv, e.RV)
		}
		if err := mirror.CatchUp(t.Context(), last); err != nil {
			t.Fatalf("from %d to %d: %v", rv, last, err)
		}
		if err := mirror.Equal(now); err != nil {
			t.Fatalf("from %d: %v", rv, err)
		}
	}
	m.issued = slices.DeleteFunc(m.issued, func(rv uint64) bool { _, ok := m.past[rv]; return !ok })
}

// tear cuts the end off the last log.
func (m *restarts) tear(t *rapid.T) {
	logs, err := filepath.Glob(filepath.Join(m.dir, "pods.v1.", "log-*"))
	if err != nil || len(logs) == 0 {
		return
	}
	slices.SortFunc(logs, func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
	last := logs[len(logs)-1]
	info, err := os.Stat(last)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(last, max(0, info.Size()-int64(rapid.IntRange(1, 1500).Draw(t, "cut")))); err != nil {
		t.Fatal(err)
	}
}

func TestRestartGoesOn(t *testing.T) {
	deadline := time.Now().Add(20 * time.Second) // every step writes to the disk
	rapid.Check(t, func(t *rapid.T) {
		if time.Now().After(deadline) {
			return
		}
		dir, err := os.MkdirTemp("", "restart") //nolint:usetesting // each try needs a folder of its own
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := &restarts{dir: dir, numbers: &sequence.Memory{}, members: map[cache.ClusterName][]change{}, passed: map[cache.ClusterName]int{}, past: map[uint64]cachetest.Content{}}
		m.start(t)
		m.relist(t, "m1")
		m.relist(t, "m2")
		t.Repeat(map[string]func(*rapid.T){
			"happen":  m.happen,
			"follow":  m.follow,
			"observe": m.observed,
			"relist":  func(t *rapid.T) { m.relist(t, "m1") },
			"save": func(t *rapid.T) {
				if err := m.col().Save(m.col().dir); err != nil {
					t.Fatal(err)
				}
			},
			"pack": func(*rapid.T) { m.col().Store().PackAll() },
			"kill": m.kill,
		})
		for _, n := range []cache.ClusterName{"m1", "m2"} {
			for ; m.passed[n] < len(m.members[n]); m.passed[n]++ {
				m.bring(t, m.source(n), m.members[n][m.passed[n]])
			}
		}
		m.compare(t)
	})
}

// compare makes sure that what is served is what the members have.
func (m *restarts) compare(t *rapid.T) {
	want := map[string]bool{}
	for n, all := range m.members {
		last := map[string]change{}
		for _, c := range all {
			last[c.name] = c
		}
		for name, c := range last {
			if !c.gone {
				want[fmt.Sprint(n, "/", name, "@", c.rv)] = true
			}
		}
	}
	got := map[string]bool{}
	m.col().Store().Present().Ascend(cache.Key{}, func(o *cache.Object) bool {
		got[fmt.Sprint(o.Cluster, "/", o.SourceName, "@", o.SourceRV)] = true
		return true
	})
	if !maps.Equal(got, want) {
		t.Fatalf("served is %v, the members have %v", got, want)
	}
}
