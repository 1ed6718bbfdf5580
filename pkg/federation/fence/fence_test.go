package fence

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	r := Record{Epoch: 7, Term: "t7", Step: 3, Past: []Term{{5, "t5", 9}, {6, "t6", 0}}, Forgotten: 4}
	mark := func(epoch int64, term string, step int64) *Mark {
		return &Mark{ControlPlane: "cp", Epoch: epoch, Term: term, Step: step}
	}
	for name, c := range map[string]struct {
		mark *Mark
		want Verdict
	}{
		"none":                      {nil, Claim},
		"present step":              {mark(7, "t7", 3), Pass},
		"earlier step":              {mark(7, "t7", 0), Pass},
		"later step: restored":      {mark(7, "t7", 4), Behind},
		"former term":               {mark(5, "t5", 9), Pass},
		"former term, lost step":    {mark(5, "t5", 10), Behind},
		"same epoch, another term":  {mark(7, "other", 0), Behind},
		"past epoch, another term":  {mark(6, "other", 0), Behind},
		"later epoch":               {mark(8, "t8", 0), Behind},
		"before all that is known":  {mark(4, "old", 100), Pass},
		"name of another epoch":     {mark(6, "t5", 0), Behind},
		"another control plane":     {&Mark{ControlPlane: "x", Epoch: 7, Term: "t7"}, Foreign},
		"another one, higher epoch": {&Mark{ControlPlane: "x", Epoch: 70}, Foreign},
		"no id":                     {&Mark{Epoch: 7, Term: "t7"}, Foreign},
	} {
		if got, why := Decide(r, "cp", "m1", c.mark); got != c.want || why == "" {
			t.Errorf("%s: %v (%s), want %v", name, got, why, c.want)
		}
	}
	r.Awaited, r.AcceptedEpoch = []string{"m2"}, 10
	if got, _ := Decide(r, "cp", "m2", mark(9, "t9", 1)); got != Pass {
		t.Errorf("a cluster that was not asked at the acceptance: %v", got)
	}
	if got, _ := Decide(r, "cp", "m2", &Mark{ControlPlane: "x"}); got != Foreign {
		t.Errorf("an acceptance does not take a cluster from another control plane: %v", got)
	}
	if got, _ := Decide(r, "cp", "m2", mark(10, "t10", 1)); got != Behind {
		t.Errorf("an awaited cluster that was written to after the acceptance: %v", got)
	}
}

func TestCodec(t *testing.T) {
	r := Record{}.Open("a").Raise().Open("b")
	data, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode[Record](data)
	if err != nil || !cmp.Equal(got, r) {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
	for _, bad := range []map[string]string{nil, {Key: ""}, {Key: "{"}, {Key: `{"epoch":"x"}`}} {
		if _, err := Decode[Mark](bad); err == nil {
			t.Errorf("%v is read as a mark", bad)
		}
	}
}

func TestForgetting(t *testing.T) {
	r := Record{}
	var first Mark
	for i := range 3 * remembered {
		r = r.Open(fmt.Sprint("t", i)).Raise()
		if i == 0 {
			first = r.Mark("cp", 1)
		}
	}
	if len(r.Past) != remembered {
		t.Errorf("%d terms are remembered", len(r.Past))
	}
	if got, why := Decide(r, "cp", "m1", &first); got != Pass {
		t.Errorf("the first mark: %v (%s)", got, why)
	}
}

// world plays one control plane whose etcd is restored at random, and members
// that it writes to, some of them out of reach.
type world struct {
	record    Record
	written   int64 // newest state in etcd; covered is what the step covers
	covered   int64
	snapshots []world
	members   map[string]*playedMember
	terms     int
}

type playedMember struct {
	mark  *Mark
	basis int64 // newest state of this history that was written to it
	lost  bool  // holds something of a history that was given up
}

func (w *world) term() string { w.terms++; return fmt.Sprint("t", w.terms) }

// Nothing is written to a member that holds something of a lost history, until
// that was accepted; and a control plane that was never restored is never
// refused.
func TestRestoresAreNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{members: map[string]*playedMember{"m1": {}, "m2": {}, "m3": {}}}
		w.record = w.record.Open(w.term())
		cluster := rapid.SampledFrom([]string{"m1", "m2", "m3"})
		restored := false
		t.Repeat(map[string]func(*rapid.T){
			"change": func(*rapid.T) { w.written++ },
			"restart": func(*rapid.T) {
				w.record = w.record.Open(w.term())
				w.covered = w.written
			},
			"snapshot": func(*rapid.T) {
				w.snapshots = append(w.snapshots, world{record: w.record, written: w.written, covered: w.covered})
			},
			"restore": func(t *rapid.T) {
				if len(w.snapshots) == 0 {
					t.Skip("no snapshot")
				}
				s := rapid.SampledFrom(w.snapshots).Draw(t, "snapshot")
				for _, m := range w.members {
					m.lost = m.lost || m.basis > s.written
				}
				restored = true
				w.record, w.written = s.record.Open(w.term()), s.written
				w.covered = w.written
				// Snapshots of the lost history are no part of this one.
				w.snapshots = slices.DeleteFunc(w.snapshots, func(o world) bool { return o.written > s.written || len(o.record.Past) > len(s.record.Past) })
			},
			"write": func(t *rapid.T) {
				name := cluster.Draw(t, "cluster")
				m := w.members[name]
				v, why := Decide(w.record, "cp", name, m.mark)
				if !v.Allowed() {
					if !restored {
						t.Fatalf("refused without a restore: %s", why)
					}
					return
				}
				if m.lost {
					t.Fatalf("%s is written to though it holds lost state (%s)", name, why)
				}
				if w.covered < w.written {
					w.record, w.covered = w.record.Raise(), w.written
				}
				mark := w.record.Mark("cp", uint64(w.covered))
				m.mark, m.basis = &mark, w.written
			},
			"accept": func(t *rapid.T) {
				var seen []Mark
				var awaited []string
				for name, m := range w.members {
					if rapid.Bool().Draw(t, "reachable "+name) {
						if m.mark != nil {
							seen = append(seen, *m.mark)
						}
					} else {
						awaited = append(awaited, name)
					}
				}
				w.record = w.record.Accept("id", w.term(), seen, awaited, 1000*int64(w.terms))
				w.covered = w.written
				for name, m := range w.members {
					m.lost = false
					m.basis = min(m.basis, w.written)
					if v, why := Decide(w.record, "cp", name, m.mark); !v.Allowed() {
						t.Fatalf("%s is refused after an acceptance: %s", name, why)
					}
					if m.mark != nil && m.mark.Epoch >= w.record.Epoch && !slices.Contains(awaited, name) {
						t.Fatalf("the epoch %d is not past that of %s, %d", w.record.Epoch, name, m.mark.Epoch)
					}
				}
			},
		})
	})
}
