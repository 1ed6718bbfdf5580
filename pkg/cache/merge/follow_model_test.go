package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
)

// frames is a stream that is read later, as a network is.
type frames [][]byte

func (f *frames) Write(kind byte, payload []byte) error {
	*f = append(*f, append([]byte{kind}, payload...))
	return nil
}

func (f *frames) Flush() error { return nil }

// process is one replica: a collection, and the stream that it follows.
type process struct {
	c       *Collection
	numbers *sequence.Clock
	// Of the stream that it follows; nil before the first.
	tail  *tail
	from  *process
	sent  frames // and not taken yet
	taker *Follower
	seen  uint64 // the highest RV that a reader has got
	fed   map[cache.ClusterName]*Source
}

// members are what the leaders feed from: versions of objects, by cluster.
type member struct {
	rv      uint64
	objects map[string]uint64
}

// moments is the naive model: what was served at each RV, by whoever led then.
type moments map[uint64]cachetest.Content

type fleet struct {
	t        *rapid.T
	reserved sequence.Memory
	members  map[cache.ClusterName]*member
	all      [3]*process
	leader   *process
	moments  moments
	last     uint64 // up to which moments are known
}

var clusters = []cache.ClusterName{"m1", "m2"}

func newProcess() *process {
	p := &process{numbers: sequence.New(clock.RealClock{}, nil), fed: map[cache.ClusterName]*Source{}}
	p.c = New(Config{
		Resource: cachetest.Widgets, Clock: p.numbers, Now: clock.RealClock{}, Follow: true, Arena: arena.New(),
		Index: references.NewIndex(func() {}), Limits: store.Limits{Bytes: 12 << 10, Age: time.Hour},
	})
	return p
}

func widget(name string, rv uint64) []byte {
	return fmt.Appendf(nil, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"namespace":"d","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, rv)
}

// lead makes a process the leader: it goes on with the members from where the
// log has brought it, else by a complete state.
func (f *fleet) lead(p *process) {
	if err := p.numbers.Start(f.t.Context(), &f.reserved, p.c.Head(), nil); err != nil {
		f.t.Fatal(err)
	}
	p.c.Lead()
	f.leader, p.tail, p.taker, p.sent = p, nil, nil, nil
	f.last = p.c.Head()
	f.moments[f.last] = content(f.t, p.c)
	for i, name := range clusters {
		s := p.c.Join(name, i, true)
		p.fed[name] = s
		m := f.members[name]
		if from := s.ResumePoint(); from == "" {
			s.Begin()
			f.put(s, m, 0)
			s.End(fmt.Sprint(m.rv))
		} else {
			var at uint64
			if _, err := fmt.Sscan(from, &at); err != nil {
				f.t.Fatal(err)
			}
			f.put(s, m, at)
			s.Progress(fmt.Sprint(m.rv))
			s.Connected()
		}
		s.Flush()
	}
	f.remember()
}

// put brings what a member has since an RV. Objects stay: versions of 0 are gone.
func (f *fleet) put(s *Source, m *member, since uint64) {
	var names []string
	for name := range m.objects {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(m.objects[a]&^gone) - int(m.objects[b]&^gone) })
	for _, name := range names {
		rv := m.objects[name]
		var err error
		switch {
		case rv&^gone <= since:
		case rv&gone == 0:
			err = s.Put(widget(name, rv))
		case since > 0:
			err = s.Delete(widget(name, rv&^gone))
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// gone marks the version at which an object was deleted.
const gone = uint64(1) << 40

// remember notes what the leader serves now, and after each event since the last
// time.
func (f *fleet) remember() {
	c := f.leader.c
	now := content(f.t, c)
	tail, err := c.store.Since(f.last)
	if err == nil {
		then := maps.Clone(f.moments[f.last])
		err = tail.Each(func(events []*cache.Event) error {
			for _, e := range events {
				then = maps.Clone(then)
				if then[e.Object.Key] = string(e.Object.Raw()); e.Type == cache.Deleted {
					delete(then, e.Object.Key)
				}
				f.moments[e.RV] = then
			}
			return nil
		})
		err = errors.Join(err, cachetest.Same(then, now))
	}
	// What is in no history any more is in no stream either.
	if err != nil && !errors.Is(err, cache.ErrExpired) {
		f.t.Fatalf("the leader itself: %v", err)
	}
	f.last = c.Head()
	f.moments[f.last] = now
}

func content(t *rapid.T, c *Collection) cachetest.Content {
	snap, err := c.Snapshot(t.Context(), cache.Version{Match: cache.Any})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cachetest.Read(cachetest.Widgets, snap)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// change is one event of a member, which the leader hears of.
func (f *fleet) change() {
	cluster := rapid.SampledFrom(clusters).Draw(f.t, "cluster")
	m, s := f.members[cluster], f.leader.fed[cluster]
	name := fmt.Sprint("w", rapid.IntRange(0, 5).Draw(f.t, "object"))
	m.rv++
	before, known := m.objects[name]
	var err error
	if known && before&gone == 0 && rapid.IntRange(0, 3).Draw(f.t, "delete") == 0 {
		m.objects[name] = m.rv | gone
		err = s.Delete(widget(name, m.rv))
	} else {
		m.objects[name] = m.rv
		err = s.Put(widget(name, m.rv))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	s.Flush()
	f.remember()
}

func (f *fleet) follower(label string) *process {
	var others []*process
	for _, p := range f.all {
		if p != f.leader {
			others = append(others, p)
		}
	}
	return others[rapid.IntRange(0, len(others)-1).Draw(f.t, label)]
}

// connect begins a stream at a follower's head, behind it, or anew; what was on
// the way of the stream before is lost.
func (f *fleet) connect() {
	p := f.follower("connects")
	from := p.c.Head()
	switch rapid.IntRange(0, 4).Draw(f.t, "from") {
	case 0:
		from = 0
	case 1, 2: // everything since comes twice
		known := slices.Sorted(maps.Keys(f.moments))
		_, err := f.leader.c.store.Since(from) // one of a fork is never told what to go on from
		if i, _ := slices.BinarySearch(known, from); i > 0 && err == nil {
			from = known[max(0, i-rapid.IntRange(1, 4).Draw(f.t, "earlier"))]
		}
	}
	p.sent, p.from, p.taker = nil, f.leader, p.c.Follower()
	tail, err := f.leader.c.tail(&p.sent, from)
	if err != nil {
		f.t.Fatal(err)
	}
	p.tail = tail
}

// send writes what has happened to the streams of one follower.
func (f *fleet) send() {
	p := f.follower("is sent to")
	if p.tail == nil {
		return
	}
	if err := p.tail.send(rapid.Bool().Draw(f.t, "beat")); err != nil {
		if !errors.Is(err, cache.ErrExpired) {
			f.t.Fatal(err)
		}
		p.tail = nil // too slow
	}
}

// deliver takes some of what was sent, of a leader of before too.
func (f *fleet) deliver() {
	p := f.follower("takes")
	n := len(p.sent)
	if rapid.Bool().Draw(f.t, "some") {
		n = min(n, rapid.IntRange(0, 20).Draw(f.t, "frames"))
	}
	for _, frame := range p.sent[:n] {
		if p.taker == nil {
			break
		}
		if err := p.taker.Take(frame[0], bytes.Clone(frame[1:])); err != nil {
			// A leader of before may send what is older than what the new one sent.
			if p.from == f.leader {
				f.t.Fatalf("frame %q of the leader: %v", frame[0], err)
			}
			p.taker, p.tail = nil, nil
		}
		f.check(p)
	}
	p.sent = p.sent[n:]
}

// promote lets a follower take over that was loaded once. The leader of before
// ends, and comes back with nothing.
func (f *fleet) promote() {
	p := f.follower("takes over")
	if !p.c.Loaded() {
		return
	}
	old := slices.Index(f.all[:], f.leader)
	f.lead(p)
	f.all[old] = newProcess()
}

// check compares what a process serves with the model.
func (f *fleet) check(p *process) {
	snap, err := p.c.Snapshot(f.t.Context(), cache.Version{Match: cache.Any})
	if err != nil {
		f.t.Fatal(err)
	}
	if snap.RV() < p.seen {
		f.t.Fatalf("the RV went back from %d to %d", p.seen, snap.RV())
	}
	p.seen = snap.RV()
	want, ok := f.moments[p.seen]
	if !ok && p.seen == 0 && snap.Len() == 0 {
		return
	}
	if !ok {
		f.t.Fatalf("%d was never a moment of a leader", p.seen)
	}
	got, err := cachetest.Read(cachetest.Widgets, snap)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cachetest.Same(got, want); err != nil {
		f.t.Fatalf("at %d: %v", p.seen, err)
	}
}

// end lets every follower come to the present: it has what the leader has, and
// what the members have.
func (f *fleet) end() {
	for _, p := range f.all {
		if p == f.leader {
			continue
		}
		p.sent, p.taker = nil, p.c.Follower()
		tail, err := f.leader.c.tail(&p.sent, p.c.Head())
		if err != nil {
			f.t.Fatal(err)
		}
		if err := tail.send(true); err != nil {
			f.t.Fatal(err)
		}
		for _, frame := range p.sent {
			if err := p.taker.Take(frame[0], frame[1:]); err != nil {
				f.t.Fatalf("frame %q: %v", frame[0], err)
			}
			f.check(p)
		}
		if p.c.Head() != f.leader.c.Head() || !p.c.Loaded() {
			f.t.Fatalf("the follower is at %d, the leader at %d", p.c.Head(), f.leader.c.Head())
		}
	}
	for _, name := range clusters {
		for object, rv := range f.members[name].objects {
			o, ok := f.leader.c.FindSource(name, "d", object)
			if ok != (rv&gone == 0) || ok && o.SourceRV != rv {
				f.t.Fatalf("%s of %s is %v at the leader, %d in the member", object, name, o, rv)
			}
		}
	}
}

// Whatever part of whichever leader's log comes, however often and from where, a
// follower serves a moment of a leader and never goes back; one that takes over
// goes on with the members from there.
func TestFollowersAreMomentsOfLeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{t: t, members: map[cache.ClusterName]*member{}, moments: moments{}}
		for _, name := range clusters {
			f.members[name] = &member{rv: 10, objects: map[string]uint64{}}
		}
		for i := range f.all {
			f.all[i] = newProcess()
		}
		f.lead(f.all[0])
		steps := []func(){f.deliver, f.connect, f.send, f.change, f.deliver, f.send, f.change, f.promote}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]()
		}
		f.end()
	})
}

// What is no log is refused, and leaves a follower as it was.
func FuzzFollower(f *testing.F) {
	ctx := context.Background()
	leader := newProcess()
	if err := leader.numbers.Start(ctx, &sequence.Memory{}, 0, nil); err != nil {
		f.Fatal(err)
	}
	leader.c.Lead()
	source := leader.c.Join("m1", 0, true)
	source.Begin()
	source.End("1")
	for i := range uint64(4) {
		if err := source.Put(widget(fmt.Sprint("w", i), i+2)); err != nil {
			f.Fatal(err)
		}
	}
	source.Flush()
	var log frames
	tail, err := leader.c.tail(&log, 0)
	if err != nil {
		f.Fatal(err)
	}
	if err := source.Put(widget("w1", 9)); err != nil {
		f.Fatal(err)
	}
	source.Flush()
	if err := tail.send(true); err != nil {
		f.Fatal(err)
	}
	for i, frame := range log {
		f.Add(byte(i), frame)
		f.Add(byte(i), frame[:len(frame)-1])
		f.Add(byte(i), frame[:1+len(frame)/2])
	}
	f.Fuzz(func(t *testing.T, before byte, frame []byte) {
		if len(frame) == 0 {
			return
		}
		p := newProcess()
		taker := p.c.Follower()
		for _, good := range log[:min(int(before), len(log))] {
			if err := taker.Take(good[0], good[1:]); err != nil {
				t.Fatal(err)
			}
		}
		head := p.c.Head()
		err := taker.Take(frame[0], frame[1:])
		if p.c.Head() < head {
			t.Fatalf("the head went back from %d to %d", head, p.c.Head())
		}
		if _, snapErr := p.c.Snapshot(ctx, cache.Version{Match: cache.Any}); snapErr != nil {
			t.Fatalf("after %v: %v", err, snapErr)
		}
	})
}
