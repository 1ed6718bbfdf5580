package membership

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func names(members []Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}

func TestListIsInJoinOrder(t *testing.T) {
	r := newRoster()
	for _, m := range []Member{{Name: "c", Order: 1}, {Name: "a", Order: 3}, {Name: "b", Order: 2}, {Name: "aa", Order: 3}} {
		r.set(m)
	}
	if got, want := names(r.List()), []string{"c", "b", "a", "aa"}; !slices.Equal(got, want) {
		t.Errorf("order = %v, want %v", got, want)
	}
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoster()
		r.set(Member{Name: "a", Order: 1})
		var got []string
		cancel := r.Subscribe(func(c Change) {
			got = append(got, fmt.Sprint(c.Kind, c.Member.Name, c.Member.Ready))
			time.Sleep(time.Second) // slow
		})
		synctest.Wait()
		r.set(Member{Name: "a", Order: 1}) // nothing new: not told
		r.set(Member{Name: "a", Order: 1, Ready: true})
		r.set(Member{Name: "b", Order: 2})
		r.set(Member{Name: "b", Order: 2, Ready: true}) // folded into the unseen Joined
		r.remove("a")
		r.set(Member{Name: "a", Order: 3})
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"0afalse", "1atrue", "0btrue", "2atrue", "0afalse"}
		flat := make([]string, len(got))
		for i, g := range got {
			flat[i] = stripSpaces(g)
		}
		if !slices.Equal(flat, want) {
			t.Errorf("changes = %v, want %v", flat, want)
		}
		cancel()
		cancel()
		r.set(Member{Name: "z"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got) != len(want) {
			t.Errorf("told after cancel: %v", got[len(want):])
		}
	})
}

func stripSpaces(s string) string {
	return string(slices.DeleteFunc([]rune(s), func(r rune) bool { return r == ' ' }))
}

// TestSubscribersSeeTheSameEnd replays the changes that a slow subscriber was
// told: they must lead to the state of the roster, and make sense one by one.
func TestSubscribersSeeTheSameEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRoster()
		s := &subscription{wake: make(chan struct{}, 1), done: make(chan struct{})}
		r.subs[s] = struct{}{}
		replay := map[string]Member{}
		take := func(t *rapid.T) {
			c, ok := s.pop()
			if !ok {
				return
			}
			_, known := replay[c.Member.Name]
			if known == (c.Kind == Joined) {
				t.Fatalf("%v of %s, known %v", c.Kind, c.Member.Name, known)
			}
			if c.Kind == Left {
				delete(replay, c.Member.Name)
			} else {
				replay[c.Member.Name] = c.Member
			}
		}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				r.set(Member{Name: name.Draw(t, "name"), Ready: rapid.Bool().Draw(t, "ready"), Order: rapid.Int64Range(1, 3).Draw(t, "order")})
			},
			"remove": func(t *rapid.T) { r.remove(name.Draw(t, "name")) },
			"take":   take,
		})
		for len(s.queue) > 0 {
			take(t)
		}
		if len(replay) != len(r.members) {
			t.Fatalf("replayed %v, have %v", replay, r.members)
		}
		for n, m := range r.members {
			if !m.equal(replay[n]) {
				t.Fatalf("replayed %+v, have %+v", replay[n], m)
			}
		}
	})
}
