package priority

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		fresh, backlog, row int
		want                Level
	}{
		{1, 0, 0, New},
		{0, 1, 0, Backlog},
		{1, 10000, 0, New},
		{1, 10000, newPerBacklog - 1, New},
		{1, 1, newPerBacklog, Backlog},
		{1, 0, newPerBacklog, New},
	} {
		if got := choose(c.fresh, c.backlog, c.row); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if Of(1) != New || Of(few) != New || Of(few+1) != Backlog {
		t.Error("what comes at once")
	}
}

func newTestQueue() *Queue[int] {
	return NewQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Millisecond, time.Second))
}

func take(q *Queue[int]) int {
	key, _ := q.Get()
	q.Forget(key)
	q.Done(key)
	return key
}

// A new key goes before a backlog of any size, also where it waits in it, and
// what keeps coming does not keep the backlog from getting on.
func TestNewGoesFirst(t *testing.T) {
	q := newTestQueue()
	defer q.ShutDown()
	for key := range 10000 {
		q.AddBacklog(key)
	}
	q.Add(-1)
	q.Add(7777)
	if a, b := take(q), take(q); a != -1 || b != 7777 {
		t.Errorf("%d and %d come first", a, b)
	}
	next, fresh := 0, 0
	for next < 100 {
		q.Add(-1)
		if key := take(q); key == -1 {
			fresh++
		} else if key != next {
			t.Fatalf("%d of the backlog before %d", key, next)
		} else {
			next++
		}
	}
	if fresh > 100*newPerBacklog {
		t.Errorf("%d new keys before 100 of the backlog", fresh)
	}
	if want := 10000 - 1 - 100 + 1; q.Len() != want { // and a new one
		t.Errorf("%d are left, want %d", q.Len(), want)
	}
}

// What is tried again keeps its level as long as it is not hopeless.
func TestRetriesKeepTheirLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue()
		defer q.ShutDown()
		q.Add(1)
		q.AddBacklog(2)
		for try := range steadfast + 1 {
			key, _ := q.Get()
			want := New
			if key == 2 {
				t.Fatal("the backlog went first")
			}
			if q.Level(key) != want {
				t.Errorf("try %d is on level %d", try, q.Level(key))
			}
			q.AddRateLimited(key)
			q.Done(key)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if a, b := take(q), take(q); a != 2 || b != 1 {
			t.Errorf("%d and %d: who has failed often goes behind", a, b)
		}
		q.Add(1)
		q.AddBacklog(2)
		key, _ := q.Get()
		q.AddAfter(key, time.Second)
		q.Done(key)
		time.Sleep(time.Minute)
		synctest.Wait()
		if key := take(q); key != 1 || q.Level(key) != Backlog {
			t.Errorf("%d comes first, and is on a level after it is done", key)
		}
		key, _ = q.Get()
		q.AddAfter(key, time.Second)
		q.Done(key)
		time.Sleep(time.Minute)
		q.AddBacklog(3)
		synctest.Wait()
		if a, b := take(q), take(q); a != 2 || b != 3 {
			t.Errorf("%d and %d: a retry of the backlog is backlog", a, b)
		}
	})
}

// What comes of the work on a key is as urgent as that was.
func TestEchoes(t *testing.T) {
	q := newTestQueue()
	defer q.ShutDown()
	q.AddBacklog(1)
	q.AddBacklog(2)
	q.Add(3)
	for range 3 {
		take(q)
	}
	for key := range 5 {
		q.AddEcho(key)
	}
	q.Add(2) // a change of its own
	var order []int
	for range 5 {
		order = append(order, take(q))
	}
	if !slices.Equal(order, []int{0, 3, 4, 2, 1}) {
		t.Errorf("%v", order)
	}
	q.AddEcho(2)
	q.AddEcho(1)
	q.Add(0)
	if a, b, c := take(q), take(q), take(q); a != 2 || b != 0 || c != 1 {
		t.Errorf("%d, %d, %d", a, b, c)
	}
}

// model is what must hold, with slices.
type model struct {
	waiting [2][]int
	dirty   map[int]Level // added while worked on
	working []int
	row     int
}

func (m *model) add(key int, level Level) {
	switch {
	case slices.Contains(m.working, key):
		m.dirty[key] = max(m.dirty[key], level)
	case slices.Contains(m.waiting[New], key):
	case slices.Contains(m.waiting[Backlog], key):
		if level == New {
			m.waiting[Backlog] = slices.DeleteFunc(m.waiting[Backlog], func(k int) bool { return k == key })
			m.waiting[New] = append(m.waiting[New], key)
		}
	default:
		m.waiting[level] = append(m.waiting[level], key)
	}
}

func (m *model) next() (int, Level, error) {
	level := New
	if len(m.waiting[New]) == 0 || len(m.waiting[Backlog]) > 0 && m.row == newPerBacklog {
		level = Backlog
	}
	if len(m.waiting[level]) == 0 {
		return 0, 0, errors.New("nothing waits")
	}
	if m.row++; level == Backlog || len(m.waiting[Backlog]) == 0 {
		m.row = 0
	}
	key := m.waiting[level][0]
	m.waiting[level] = m.waiting[level][1:]
	m.working = append(m.working, key)
	return key, level, nil
}

// Whatever is added, taken and done: every key waits once, none is lost, none is
// worked on twice at a time, and each comes when it should.
func TestQueueIsAsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, m := newTestQueue(), &model{dirty: map[int]Level{}}
		defer q.ShutDown()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := rapid.IntRange(0, 9).Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				q.Add(key)
				m.add(key, New)
			case 1:
				q.AddBacklog(key)
				m.add(key, Backlog)
			case 2:
				if q.Len() == 0 {
					continue
				}
				want, level, err := m.next()
				if got, _ := q.Get(); err != nil || got != want || q.Level(got) != level {
					t.Fatalf("%d on level %d, want %d on %d (%v)", got, q.Level(got), want, level, err)
				}
			case 3:
				if len(m.working) == 0 {
					continue
				}
				key = m.working[0]
				q.Done(key)
				m.working = m.working[1:]
				if level, ok := m.dirty[key]; ok {
					delete(m.dirty, key)
					m.add(key, level)
				}
			}
			if n := len(m.waiting[New]) + len(m.waiting[Backlog]); q.Len() != n {
				t.Fatalf("%d wait, want %d", q.Len(), n)
			}
		}
		for _, key := range m.working {
			q.Done(key)
		}
		if n := len(q.lanes.urgent); n > 0 {
			t.Fatalf("%d marks are left", n)
		}
	})
}
