// Package watchdog bounds how long a server may leave an informer waiting:
//
//	LIST   -> each page within its time, or an error
//	WATCH  -> answered in time, initial events complete in time,
//	          then events or bookmarks, or an ERROR event that has the
//	          informer read everything anew
//
// A stream can be open, answer the transport's pings, and yet say nothing: what
// runs behind it hangs. A server whose initial events do not come is asked for
// lists instead, for a time.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Limits of patience.
type Limits struct {
	Answer  time.Duration // until a watch is answered
	Page    time.Duration // until a page of a list is there
	Event   time.Duration // until the next initial event
	Initial time.Duration // until all initial events are there
	Beat    time.Duration // until the next event or bookmark, of a server that sends bookmarks
	Quiet   time.Duration // the same while no bookmark has ever come
	// Distrust is how long no initial events are asked for after they did not
	// come.
	Distrust time.Duration
}

// Default limits. API servers send a bookmark a minute.
func Default() Limits {
	return Limits{
		Answer: 20 * time.Second, Page: 2 * time.Minute, Event: 15 * time.Second, Initial: 2 * time.Minute,
		Beat: 75 * time.Second, Quiet: 3 * time.Minute, Distrust: 10 * time.Minute,
	}
}

// ErrSilent is why a list or watch was given up.
var ErrSilent = errors.New("the server has been silent for too long")

// phase of one watch.
type phase struct {
	initial bool // initial events are due
	beats   bool // bookmarks come: silence means something
}

// next is the phase after an event.
func (p phase) next(e watch.EventType, initialEnd bool) phase {
	if e != watch.Bookmark {
		return p
	}
	if p.initial {
		return phase{initial: !initialEnd, beats: p.beats}
	}
	return phase{beats: true}
}

// patience is how long the next event may take, of a watch that has lasted for
// so long.
func (p phase) patience(l Limits, lasted time.Duration) time.Duration {
	switch {
	case p.initial:
		return max(0, min(l.Event, l.Initial-lasted))
	case p.beats:
		return l.Beat
	}
	return l.Quiet
}

// dog watches over the lists and watches of one informer.
type dog struct {
	limits   Limits
	silent   func(error)
	beats    atomic.Bool  // the server sends bookmarks
	distrust atomic.Int64 // unix nanoseconds until which no initial events are asked for
}

// Guard bounds lists and watches. silent is told of each that was given up.
func Guard(lw *cache.ListWatch, l Limits, silent func(error)) *cache.ListWatch {
	d := &dog{limits: l, silent: silent}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return d.list(ctx, lw, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.watch(ctx, lw, o)
		},
	}
}

func (d *dog) give(what string, after time.Duration) error {
	err := fmt.Errorf("%w: %s after %s", ErrSilent, what, after)
	d.silent(err)
	return err
}

func (d *dog) list(ctx context.Context, lw *cache.ListWatch, o metav1.ListOptions) (runtime.Object, error) {
	pageCtx, cancel := context.WithTimeout(ctx, d.limits.Page)
	defer cancel()
	obj, err := lw.ListWithContext(pageCtx, o)
	if err != nil && pageCtx.Err() != nil && ctx.Err() == nil {
		return nil, d.give("no list", d.limits.Page)
	}
	return obj, err
}

func (d *dog) watch(ctx context.Context, lw *cache.ListWatch, o metav1.ListOptions) (watch.Interface, error) {
	initial := o.SendInitialEvents != nil && *o.SendInitialEvents
	if initial && time.Now().UnixNano() < d.distrust.Load() {
		// The informer lists instead.
		return nil, fmt.Errorf("%w: its initial events did not come a while ago", ErrSilent)
	}
	ctx, cancel := context.WithCancel(ctx)
	// Where the answer comes at the same moment, it is given up all the same.
	late := time.AfterFunc(d.limits.Answer, cancel)
	w, err := lw.WatchWithContext(ctx, o)
	if !late.Stop() {
		cancel()
		if err == nil {
			w.Stop()
		}
		d.doubt(initial)
		return nil, d.give("no answer to a watch", d.limits.Answer)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{dog: d, next: w, cancel: cancel, out: make(chan watch.Event), done: make(chan struct{})}
	go s.run(phase{initial: initial, beats: d.beats.Load()})
	return s, nil
}

func (d *dog) doubt(initial bool) {
	if initial {
		d.distrust.Store(time.Now().Add(d.limits.Distrust).UnixNano())
	}
}

// stream is a watch that is watched.
type stream struct {
	dog     *dog
	next    watch.Interface
	cancel  context.CancelFunc
	out     chan watch.Event
	done    chan struct{}
	stopped atomic.Bool
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	if s.stopped.CompareAndSwap(false, true) {
		close(s.done)
	}
}

func (s *stream) run(p phase) {
	defer close(s.out)
	defer s.cancel()
	defer s.next.Stop()
	start := time.Now()
	timer := time.NewTimer(p.patience(s.dog.limits, 0))
	defer timer.Stop()
	for {
		select {
		case e, ok := <-s.next.ResultChan():
			if !ok || !s.send(e) {
				return
			}
			if p = p.next(e.Type, endsInitial(e)); p.beats {
				s.dog.beats.Store(true)
			}
			// Only from here on: a slow reader is no silent server.
			timer.Reset(p.patience(s.dog.limits, time.Since(start)))
		case <-timer.C:
			s.dog.doubt(p.initial)
			err := s.dog.give(p.String(), time.Since(start))
			s.send(watch.Event{Type: watch.Error, Object: new(apierrors.NewTimeoutError(err.Error(), 0).Status())})
			return
		case <-s.done:
			return
		}
	}
}

func (s *stream) send(e watch.Event) bool {
	select {
	case s.out <- e:
		return true
	case <-s.done:
		return false
	}
}

func (p phase) String() string {
	if p.initial {
		return "initial events are not complete"
	}
	return "no event and no bookmark"
}

func endsInitial(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	o, err := meta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
