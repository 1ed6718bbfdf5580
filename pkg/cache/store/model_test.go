package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// model is what a store should be: every moment as a map.
type model struct {
	*Store
	rv      uint64
	now     map[cache.Key]string
	moments map[uint64]map[cache.Key]string
	kept    []*Snapshot // read again later, when what they hold has been replaced
}

func whole(key cache.Key, rv uint64, size int) *cache.Object {
	raw := strings.Repeat(fmt.Sprintf("%s at %d;", key, rv), 1+size)
	return &cache.Object{
		Key: key, SourceName: key.Name, Cluster: "m", RV: rv, SourceRV: rv / 2, Body: cache.Bytes(raw),
		UID:    "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
		Labels: compact.MakeLabels([]wire.Pair{{Key: "app", Value: key.Name}, {Key: "tier", Value: "x"}}),
		Fields: compact.MakeFields([]string{"status.phase"}, []string{fmt.Sprint(rv % 3)}),
		Origin: &cache.Origin{Node: fmt.Sprint("n", rv%5), Owners: []cache.OwnerRef{{APIVersion: "v1", Kind: "Node", Name: "o", UID: "u", Controller: rv%2 == 0}}},
	}
}

func (m *model) commit(t *rapid.T, key cache.Key, size int) {
	m.rv += 1 + uint64(rapid.IntRange(0, 2).Draw(t, "gap"))
	prev, there := m.At(key)
	if raw, ok := m.now[key]; ok != there || ok && raw != string(prev.Raw()) {
		t.Fatalf("%s: %v before the event", key, there)
	}
	e := &cache.Event{Object: whole(key, m.rv, max(size, 0)), RV: m.rv, Time: time.Now()}
	switch {
	case size < 0 && !there:
		m.rv = m.Head()
		return
	case size < 0:
		e.Type, e.Prev = cache.Deleted, prev
		delete(m.now, key)
	case there:
		e.Type, e.Prev = cache.Modified, prev
	}
	if size >= 0 {
		m.now[key] = string(e.Object.Raw())
	}
	m.Commit(e)
	m.Publish()
	m.moments[m.rv] = maps.Clone(m.now)
}

func (m *model) same(t *rapid.T, s *Snapshot) {
	got := map[cache.Key]string{}
	var last cache.Key
	s.Ascend(cache.Key{}, func(o *cache.Object) bool {
		if last != (cache.Key{}) && last.Compare(o.Key) >= 0 {
			t.Fatalf("%s after %s", o.Key, last)
		}
		last = o.Key
		if !strings.HasPrefix(string(o.Raw()), fmt.Sprintf("%s at %d;", o.Key, o.RV)) || o.Labels.Get("app") != o.Key.Name ||
			o.Fields.Get("status.phase") != fmt.Sprint(o.RV%3) || o.Origin.Node != fmt.Sprint("n", o.RV%5) || o.SourceRV != o.RV/2 ||
			o.Origin.Owners[0].Controller != (o.RV%2 == 0) || o.Body.Len() != len(o.Raw()) {
			t.Fatalf("%s has become another object: %+v", o.Key, o)
		}
		got[o.Key] = string(o.Raw())
		return true
	})
	if want := m.moments[s.RV()]; !maps.Equal(got, want) || s.Len() != len(want) {
		t.Fatalf("at %d: %d objects, Len %d, not %d", s.RV(), len(got), s.Len(), len(want))
	}
	keys := slices.SortedFunc(maps.Keys(got), cache.Key.Compare)
	if len(keys) == 0 {
		return
	}
	from := rapid.SampledFrom(keys).Draw(t, "from")
	i, _ := slices.BinarySearchFunc(keys, from, cache.Key.Compare)
	n := i
	s.Ascend(from, func(o *cache.Object) bool {
		if n == len(keys) || o.Key != keys[n] {
			t.Fatalf("from %s: %s", from, o.Key)
		}
		n++
		return true
	})
	if n != len(keys) {
		t.Fatalf("from %s: %d of %d", from, n-i, len(keys)-i)
	}
	if o, ok := s.Get(from); !ok || string(o.Raw()) != got[from] {
		t.Fatalf("get of %s", from)
	}
}

// TestPackedIsTheSame compares a store that is packed at random moments with
// maps, at every moment that its history reaches.
func TestPackedIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pack.Packer{Arena: arena.NewPoisoned(), Fields: []string{"status.phase"}}
		m := &model{Store: New(100, Limits{Bytes: 1 << 20, Age: time.Hour}, clock.RealClock{}, p), rv: 100, now: map[cache.Key]string{}}
		m.moments = map[uint64]map[cache.Key]string{100: {}}
		key := rapid.Custom(func(t *rapid.T) cache.Key {
			return cache.Key{Namespace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "ns"), Name: fmt.Sprintf("k%03d", rapid.IntRange(0, 150).Draw(t, "key"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) { m.commit(t, key.Draw(t, "key"), rapid.IntRange(0, 40).Draw(t, "size")) },
			"fill": func(t *rapid.T) {
				for range rapid.IntRange(10, 80).Draw(t, "n") {
					m.commit(t, key.Draw(t, "key"), 3)
				}
			},
			"remove": func(t *rapid.T) { m.commit(t, key.Draw(t, "key"), -1) },
			"empty": func(t *rapid.T) {
				ns := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ns")
				for k := range maps.Clone(m.now) {
					if k.Namespace == ns {
						m.commit(t, k, -1)
					}
				}
			},
			"pack": func(*rapid.T) { m.PackAll() },
			"keep": func(*rapid.T) { m.kept = append(m.kept, m.Present()) },
			"past": func(t *rapid.T) {
				rv := rapid.SampledFrom(slices.Sorted(maps.Keys(m.moments))).Draw(t, "rv")
				s, err := m.Store.Snapshot(t.Context(), cache.Version{Match: cache.Exact, RV: rv})
				if errors.Is(err, cache.ErrExpired) && rv < m.History().From {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				m.same(t, s)
			},
			"watch": func(t *rapid.T) { m.replay(t) },
			"": func(t *rapid.T) {
				m.same(t, m.Present())
				if len(m.kept) > 0 {
					m.same(t, rapid.SampledFrom(m.kept).Draw(t, "kept"))
				}
			},
		})
	})
}

// replay applies the history from some moment to what was there then.
func (m *model) replay(t *rapid.T) {
	rv := rapid.SampledFrom(slices.Sorted(maps.Keys(m.moments))).Draw(t, "from")
	c, err := m.Watch(t.Context(), rv)
	if errors.Is(err, cache.ErrExpired) && rv < m.History().From {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	state := maps.Clone(m.moments[rv])
	for rv < m.rv {
		events, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			before, there := state[e.Object.Key]
			if e.RV <= rv || there != (e.Prev != nil) || there && string(e.Prev.Raw()) != before || e.Object.RV != e.RV {
				t.Fatalf("event %d after %d: %s", e.RV, rv, e.Object.Key)
			}
			rv = e.RV
			if e.Type == cache.Deleted {
				delete(state, e.Object.Key)
			} else {
				state[e.Object.Key] = string(e.Object.Raw())
			}
		}
	}
	if !maps.Equal(state, m.now) {
		t.Fatalf("%d objects after the replay, not %d", len(state), len(m.now))
	}
}
