package stream

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func object(uid string, version uint64, n int64) Object {
	return Object{Namespace: "a", Name: "name-" + uid, UID: uid, Version: version, N: n}
}

// began holds x (RV 5, n 2) at RV 10.
func began() *Watcher {
	w := New("w")
	w.Listed(10, []Object{object("x", 5, 2)})
	return w
}

func TestWatcher(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*Watcher)
		want string
	}{
		"right": {func(w *Watcher) {
			w.Event(Modified, object("x", 11, 3))
			w.Bookmark(15)
			w.Event(Added, object("y", 16, 0))
			w.Ended()
			w.Event(Deleted, object("x", 17, 3))
			w.Event(Added, Object{Namespace: "a", Name: "name-x", UID: "z", Version: 18})
			w.Bookmark(18)
		}, ""},
		"twice": {func(w *Watcher) {
			w.Event(Modified, object("x", 11, 3))
			w.Event(Modified, object("x", 11, 3))
		}, "not in order"},
		"out of order": {func(w *Watcher) {
			w.Event(Added, object("y", 12, 0))
			w.Event(Modified, object("x", 11, 3))
		}, "not in order"},
		"of before the list":          {func(w *Watcher) { w.Event(Modified, object("x", 10, 3)) }, "not in order"},
		"of before a bookmark":        {func(w *Watcher) { w.Bookmark(20); w.Event(Modified, object("x", 20, 3)) }, "not in order"},
		"a bookmark that goes back":   {func(w *Watcher) { w.Event(Modified, object("x", 11, 3)); w.Bookmark(10) }, "a bookmark of RV 10"},
		"added twice":                 {func(w *Watcher) { w.Event(Added, object("x", 11, 3)) }, "which is there"},
		"modified and never added":    {func(w *Watcher) { w.Event(Modified, object("y", 11, 3)) }, "which is not there"},
		"deleted and never added":     {func(w *Watcher) { w.Event(Deleted, object("y", 11, 3)) }, "which is not there"},
		"a content that goes back":    {func(w *Watcher) { w.Event(Modified, object("x", 11, 1)) }, "goes back"},
		"two of one name":             {func(w *Watcher) { w.Event(Added, Object{Namespace: "a", Name: "name-x", UID: "y", Version: 11}) }, "has the name of"},
		"another name":                {func(w *Watcher) { o := object("x", 11, 3); o.Name = "b"; w.Event(Modified, o) }, "was a/name-x"},
		"a list that goes back":       {func(w *Watcher) { w.Listed(9, nil) }, "a list of RV 9"},
		"a list of old objects":       {func(w *Watcher) { w.Listed(20, []Object{object("x", 4, 2)}) }, "comes after"},
		"a list with what is to come": {func(w *Watcher) { w.Listed(20, []Object{object("x", 21, 2)}) }, "the list of RV 20 has"},
	} {
		t.Run(name, func(t *testing.T) {
			w := began()
			c.do(w)
			found := w.Problems()
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func TestAgree(t *testing.T) {
	full := began()
	for v := uint64(11); v < 20; v++ {
		full.Event(Modified, object("x", v, int64(v)))
	}
	for name, c := range map[string]struct {
		do   func(*Watcher)
		want string
	}{
		"shorter":             {func(w *Watcher) { w.Event(Modified, object("x", 11, 11)) }, ""},
		"a gap":               {func(w *Watcher) { w.Event(Modified, object("x", 11, 11)); w.Event(Modified, object("x", 13, 13)) }, "never told {MODIFIED x 12 12}"},
		"a gap at the start":  {func(w *Watcher) { w.Event(Modified, object("x", 12, 12)) }, "never told {MODIFIED x 11 11}"},
		"a gap to a bookmark": {func(w *Watcher) { w.Event(Modified, object("x", 11, 11)); w.Bookmark(12) }, "never told {MODIFIED x 12 12}"},
		"another content":     {func(w *Watcher) { w.Event(Modified, object("x", 11, 12)) }, "was told {MODIFIED x 11 12}"},
		"a list in between":   {func(w *Watcher) { w.Event(Modified, object("x", 11, 11)); w.Listed(15, nil) }, ""},
		"one more": {func(w *Watcher) {
			for v := uint64(11); v < 20; v++ {
				if v == 15 {
					w.Ended()
				}
				w.Event(Modified, object("x", v, int64(v)))
			}
			w.Event(Added, object("y", 21, 0))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			other := began()
			other.name = "other"
			c.do(other)
			found := Agree([]*Watcher{full, other})
			if c.want == "" && len(found) > 0 || c.want != "" && !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

func TestMissedAndDiffer(t *testing.T) {
	w := began()
	w.Event(Modified, object("x", 11, 3))
	w.Event(Modified, object("x", 12, 5))
	if missed := w.Missed([]Content{{"x", 3}, {"x", 4}, {"x", 5}, {"y", 1}}); !slices.Equal(missed, []Content{{"x", 4}, {"y", 1}}) {
		t.Errorf("missed %v", missed)
	}
	held := map[string]Object{"x": {UID: "x", Content: "a"}, "y": {UID: "y", Content: "b"}}
	if found := Differ(held, map[string]string{"x": "a", "y": "b"}); len(found) > 0 {
		t.Errorf("equal, and found %v", found)
	}
	if found := Differ(held, map[string]string{"x": "a", "y": "c", "z": "d"}); len(found) != 2 {
		t.Errorf("found %v, want y and z", found)
	}
	if found := Differ(held, map[string]string{"x": "a"}); len(found) != 1 {
		t.Errorf("found %v, want y", found)
	}
}

// Whatever one event is withheld, told twice or moved from a history, it is
// noticed, by the watcher alone or beside another.
func TestEveryFaultIsNoticed(t *testing.T) {
	type event struct {
		kind Type
		o    Object
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, seed))
		var all []event
		there := map[string]Object{}
		version := uint64(10)
		for range 3 + r.IntN(28) {
			version += 1 + r.Uint64N(3)
			uid := string(rune('p' + r.IntN(3)))
			o, ok := there[uid]
			switch o.Version = version; {
			case !ok:
				o = object(uid, version, 1)
				there[uid] = o
				all = append(all, event{Added, o})
			case r.IntN(2) == 0:
				delete(there, uid)
				all = append(all, event{Deleted, o})
			default:
				o.N++
				there[uid] = o
				all = append(all, event{Modified, o})
			}
		}
		tell := func(events []event) *Watcher {
			w := New("w")
			w.Listed(10, nil)
			for _, e := range events {
				w.Event(e.kind, e.o)
			}
			w.Bookmark(max(version, w.Resume()))
			return w
		}
		right := tell(all)
		if found := append(right.Problems(), Agree([]*Watcher{right, tell(all)})...); len(found) > 0 {
			t.Fatalf("seed %d: nothing is wrong, and found %v", seed, found)
		}
		doctored := slices.Clone(all)
		at, other := r.IntN(len(all)), r.IntN(len(all))
		switch fault := r.IntN(3); {
		case fault == 0:
			doctored = slices.Delete(doctored, at, at+1)
		case fault == 1 || at == other:
			doctored = slices.Insert(doctored, at, all[at])
		default:
			doctored[at], doctored[other] = doctored[other], doctored[at]
		}
		wrong := tell(doctored)
		if len(wrong.Problems())+len(Agree([]*Watcher{right, wrong})) == 0 {
			t.Fatalf("seed %d: not noticed: %v of %v", seed, doctored, all)
		}
	}
}
