package watchdog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestPatience(t *testing.T) {
	l := Default()
	for name, c := range map[string]struct {
		phase  phase
		lasted time.Duration
		want   time.Duration
	}{
		"initial events":                  {phase{initial: true}, time.Second, l.Event},
		"initial events that trickle":     {phase{initial: true}, l.Initial - time.Second, time.Second},
		"initial events for ever":         {phase{initial: true, beats: true}, l.Initial + time.Second, 0},
		"no bookmark has ever come":       {phase{}, time.Hour, l.Quiet},
		"bookmarks come":                  {phase{beats: true}, time.Hour, l.Beat},
		"initial events, bookmarks known": {phase{initial: true, beats: true}, 0, l.Event},
	} {
		if got := c.phase.patience(l, c.lasted); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPhases(t *testing.T) {
	p := phase{initial: true}
	for i, step := range []struct {
		event watch.EventType
		end   bool
		want  phase
	}{
		{watch.Added, false, phase{initial: true}},
		{watch.Bookmark, false, phase{initial: true}},
		{watch.Bookmark, true, phase{}}, // says nothing about those to come
		{watch.Modified, false, phase{}},
		{watch.Bookmark, false, phase{beats: true}},
		{watch.Deleted, false, phase{beats: true}},
	} {
		if p = p.next(step.event, step.end); p != step.want {
			t.Errorf("step %d: %+v, want %+v", i, p, step.want)
		}
	}
}

// source is a server whose watches say what the test says.
type source struct {
	watches chan *watch.FakeWatcher
	mute    bool // no answer to anything
	listed  int
}

func (s *source) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			s.listed++
			if s.mute {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &corev1.PodList{}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			if s.mute {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
			s.watches <- w
			return w, nil
		},
	}
}

func newSource() *source { return &source{watches: make(chan *watch.FakeWatcher, 10)} }

func bookmark(initialEnd bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	if initialEnd {
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return p
}

var withInitialEvents = metav1.ListOptions{SendInitialEvents: new(true)}

// ending reads a watch to its end: how long it took, and the error that it
// ended with.
func ending(w watch.Interface) (time.Duration, error) {
	start := time.Now()
	var last error
	for e := range w.ResultChan() {
		if last = nil; e.Type == watch.Error {
			last = apierrors.FromObject(e.Object)
		}
	}
	return time.Since(start), last
}

// The initial events do not come: the watch ends in time with an error that has
// the informer list, and for a time no more are asked for.
func TestInitialEventsDoNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told, l := newSource(), 0, Default()
		lw := Guard(s.listWatch(), l, func(error) { told++ })
		w, err := lw.WatchWithContext(t.Context(), withInitialEvents)
		if err != nil {
			t.Fatal(err)
		}
		(<-s.watches).Add(&corev1.Pod{})
		took, err := ending(w)
		if took != l.Event || !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "initial events") || told != 1 {
			t.Errorf("%v after %s, told %d times", err, took, told)
		}
		if _, err := lw.WatchWithContext(t.Context(), withInitialEvents); !errors.Is(err, ErrSilent) {
			t.Errorf("asked again at once: %v", err)
		}
		if w, err = lw.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("a plain watch: %v", err)
		} else {
			w.Stop()
		}
		time.Sleep(l.Distrust)
		if w, err = lw.WatchWithContext(t.Context(), withInitialEvents); err != nil {
			t.Errorf("after a while: %v", err)
		} else {
			w.Stop()
		}
	})
}

// Events that trickle do not prolong the initial phase without end.
func TestInitialEventsTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSource(), Default()
		w, err := Guard(s.listWatch(), l, func(error) {}).WatchWithContext(t.Context(), withInitialEvents)
		if err != nil {
			t.Fatal(err)
		}
		from, ended := <-s.watches, make(chan struct{})
		go func() {
			for {
				select {
				case <-time.After(l.Event - time.Second):
					from.Add(&corev1.Pod{})
				case <-ended:
					return
				}
			}
		}()
		took, err := ending(w)
		close(ended)
		if took != l.Initial || !apierrors.IsTimeout(err) {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// A watch that is alive lives on; when its bookmarks stay away it ends, and a
// new one is expected to bring them from its start.
func TestBookmarksStayAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSource(), Default()
		lw := Guard(s.listWatch(), l, func(error) {})
		w, err := lw.WatchWithContext(t.Context(), withInitialEvents)
		if err != nil {
			t.Fatal(err)
		}
		from := <-s.watches
		go func() {
			from.Action(watch.Bookmark, bookmark(true))
			for range 10 {
				time.Sleep(time.Minute)
				from.Action(watch.Bookmark, bookmark(false))
			}
		}()
		if took, err := ending(w); took != 10*time.Minute+l.Beat || !apierrors.IsTimeout(err) {
			t.Errorf("%v after %s", err, took)
		}
		if w, err = lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err != nil {
			t.Fatal(err)
		}
		if took, err := ending(w); took != l.Beat || !apierrors.IsTimeout(err) {
			t.Errorf("the next: %v after %s", err, took)
		}
	})
}

func TestServerWithoutBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSource(), Default()
		w, err := Guard(s.listWatch(), l, func(error) {}).WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		from := <-s.watches
		go func() {
			time.Sleep(l.Quiet - time.Second)
			from.Modify(&corev1.Pod{})
		}()
		if took, err := ending(w); took != 2*l.Quiet-time.Second || !apierrors.IsTimeout(err) {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, told := newSource(), Default(), 0
		s.mute = true
		lw := Guard(s.listWatch(), l, func(error) { told++ })
		start := time.Now()
		if _, err := lw.WatchWithContext(t.Context(), withInitialEvents); !errors.Is(err, ErrSilent) || time.Since(start) != l.Answer {
			t.Errorf("watch: %v after %s", err, time.Since(start))
		}
		start = time.Now()
		if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, ErrSilent) || time.Since(start) != l.Page {
			t.Errorf("list: %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := lw.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) || told != 2 {
			t.Errorf("the end of the informer: %v, told %d times", err, told)
		}
	})
}

// Who stops watching is rid of it, whatever the state, and a slow reader is
// not taken for a silent server.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, told := newSource(), Default(), 0
		lw := Guard(s.listWatch(), l, func(error) { told++ })
		w, err := lw.WatchWithContext(t.Context(), withInitialEvents)
		if err != nil {
			t.Fatal(err)
		}
		from := <-s.watches
		from.Add(&corev1.Pod{})
		from.Action(watch.Bookmark, bookmark(true))
		time.Sleep(l.Event * 4) // the reader is elsewhere
		<-w.ResultChan()
		if e := <-w.ResultChan(); e.Type != watch.Bookmark || told != 0 {
			t.Errorf("%+v, told %d times", e, told)
		}
		from.Modify(&corev1.Pod{}) // nobody reads it
		synctest.Wait()
		w.Stop()
		w.Stop()
		synctest.Wait()
		if !from.IsStopped() {
			t.Error("the watch goes on")
		}
	})
}
