// Package feed follows one resource of one source as bytes.
//
//	new, or expired:  WATCH with initial events, or pages of LIST
//	      -> Sink.Begin, Put ..., End(RV)
//	then:             WATCH from that RV
//	      -> Sink.Put, Delete, Progress, Flush at the end of each burst
//	broken:           Sink.Disconnected, a pause, WATCH from the last RV
//
// Objects are not decoded here. A source that is gone keeps what it has
// delivered; a relist is a difference, which the sink makes of Begin and End.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Sink takes what a feed brings, in order, from one goroutine. Bytes are valid
// during the call only.
type Sink interface {
	Begin()
	Put(raw []byte) error
	Delete(raw []byte) error
	End(sourceRV string)
	Abort()
	Progress(sourceRV string)
	Flush()
	Connected()
	Disconnected(err error)
}

// Options say what a feed follows.
type Options struct {
	Resource      cache.Resource
	LabelSelector string
	// Metadata asks for PartialObjectMetadata instead of whole objects.
	Metadata bool
	// From is the RV from which to go on; empty for a complete state first.
	From  string
	Sink  Sink
	Clock clock.WithTicker
	// Check is called for every new connection: an error keeps the feed from
	// it, as when another cluster answers in the place of this one.
	Check func(ctx context.Context, config *rest.Config) error
	// Dropped is told of objects that cannot be read; they are left out.
	Dropped func(error)
	// Large gives turns at reading large pages, so that the feeds of one source
	// together hold no more of them than it has room for; nil bounds nothing.
	Large chan struct{}
	// Counted is told of relists and resumes; both may be nil.
	Relisted, Resumed func()
}

// Limits of patience. The transport's own pings end a dead connection sooner.
const (
	headerWait   = 20 * time.Second
	silenceWait  = 75 * time.Second // once bookmarks have been seen
	initialWait  = 30 * time.Second // between two initial events
	minBackoff   = 200 * time.Millisecond
	maxBackoff   = 5 * time.Second // so long at most a member that is back is not followed
	missingRetry = time.Minute
	healthyAfter = 10 * time.Second
)

// Feed is one running feed.
type Feed struct {
	Options

	mu     sync.Mutex
	config *rest.Config
	kick   chan struct{} // closed when the config has changed

	// Of the goroutine in Run.
	rv          string // resume point; empty before the first complete state
	unsure      bool   // the resume point is of a process before
	noWatchList bool
	failures    int
}

// New makes a feed over a connection.
func New(config *rest.Config, o Options) *Feed {
	for _, fn := range []*func(){&o.Relisted, &o.Resumed} {
		if *fn == nil {
			*fn = func() {}
		}
	}
	if o.Dropped == nil {
		o.Dropped = func(error) {}
	}
	return &Feed{Options: o, config: config, kick: make(chan struct{}), rv: o.From, unsure: o.From != ""}
}

// Reconfigure makes the feed connect anew with another config and go on where
// it is.
func (f *Feed) Reconfigure(config *rest.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = config
	close(f.kick)
	f.kick = make(chan struct{})
}

func (f *Feed) present() (*rest.Config, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config, f.kick
}

// Run follows the source until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	for ctx.Err() == nil {
		config, kick := f.present()
		err := f.follow(ctx, config, kick)
		if ctx.Err() != nil {
			return
		}
		f.pause(ctx, kick, err)
	}
}

// follow lives as long as one connection and its config.
func (f *Feed) follow(ctx context.Context, config *rest.Config, kick <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-kick:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := connect(config, f.Options)
	if err != nil {
		return err
	}
	if f.Check != nil {
		if err := f.Check(ctx, config); err != nil {
			return err
		}
	}
	if (f.failures > 0 || f.unsure) && f.rv != "" {
		if err := f.verify(ctx, conn); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		if err := f.step(ctx, conn); err != nil {
			return err
		}
		f.failures = 0
	}
	return ctx.Err()
}

// verify makes sure after a failure that the source has not gone back behind
// the resume point, as after a restore: a watch from the future is silent.
func (f *Feed) verify(ctx context.Context, conn *connection) error {
	now, err := conn.revision(ctx)
	if err != nil {
		return err
	}
	f.unsure = false
	if older(now, f.rv) {
		klog.FromContext(ctx).Info("Source has gone back, reading it anew", "resource", f.Resource.Resource, "position", f.rv, "revision", now)
		f.rv = ""
	}
	return nil
}

// step reads a complete state where there is none, else one watch to its end.
func (f *Feed) step(ctx context.Context, conn *connection) (err error) {
	if f.rv != "" {
		err = f.watch(ctx, conn)
	} else {
		f.Relisted()
		err = f.fill(ctx, conn)
	}
	if errors.Is(err, errExpired) {
		f.rv = ""
		return nil
	}
	return err
}

// fill reads a complete state; where the server has it, the watch goes on in
// the same stream.
func (f *Feed) fill(ctx context.Context, conn *connection) error {
	f.Sink.Begin()
	done := false
	defer func() {
		if !done {
			f.Sink.Abort()
		}
	}()
	if !f.noWatchList {
		err := f.stream(ctx, conn, true, func() { done = true })
		if done || !errors.Is(err, errNoWatchList) {
			return err
		}
		f.noWatchList = true
		f.Sink.Begin() // what came so far is no complete state
	}
	rv, err := conn.list(ctx, func(raw []byte) { f.take(f.Sink.Put(raw)) })
	if err != nil {
		return err
	}
	done = true
	f.rv = rv
	f.Sink.End(rv)
	return nil
}

func (f *Feed) take(err error) {
	if err != nil {
		f.Dropped(err)
	}
}

// watch goes on from the resume point. A source that ends its watches at once
// counts as failing.
func (f *Feed) watch(ctx context.Context, conn *connection) error {
	start, from := f.Clock.Now(), f.rv
	err := f.stream(ctx, conn, false, nil)
	if err == nil && f.rv == from && f.Clock.Since(start) < time.Second {
		return errShort
	}
	return err
}

// stream reads one watch to its end. A clean end is no error.
func (f *Feed) stream(ctx context.Context, conn *connection, initial bool, synced func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := newAlarm(f.Clock, headerWait, func() { cancel(errSilent) })
	defer alarm.stop()
	frames, body, err := conn.watch(ctx, f.rv, initial)
	if err != nil {
		return cause(ctx, err)
	}
	defer body.Close()
	opened := f.Clock.Now()
	defer func() {
		// Only what was open has been well: to fail slowly is to fail.
		if f.Clock.Since(opened) > healthyAfter {
			f.failures = 0
		}
	}()
	if initial {
		alarm.reset(initialWait)
	} else {
		alarm.off()
		f.Resumed()
		f.Sink.Connected()
	}
	s := stream{Feed: f, initial: initial, synced: synced, alarm: alarm}
	for {
		frame, err := frames.Next()
		switch {
		case errors.Is(err, io.EOF) && s.initial:
			return fmt.Errorf("initial events: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && s.initial && errors.Is(cause(ctx, err), errSilent):
			return errNoWatchList
		case err != nil:
			return cause(ctx, err)
		}
		if err := s.handle(frame); err != nil {
			return err
		}
		if !s.initial && !frames.Buffered() {
			f.Sink.Flush()
		}
	}
}

// cause prefers why a context was cancelled to the error that came of it.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(c, errSilent) {
		return c
	}
	return err
}

// stream is the state of one watch.
type stream struct {
	*Feed
	initial bool
	synced  func()
	alarm   *alarm
	patient bool // bookmarks come: silence means something
	count   int
}

func (s *stream) handle(frame wire.Frame) error {
	s.count++
	switch frame.Type {
	case wire.TypeAdded, wire.TypeModified:
		s.take(s.Sink.Put(frame.Object))
		s.advance(frame.Object)
	case wire.TypeDeleted:
		s.take(s.Sink.Delete(frame.Object))
		s.advance(frame.Object)
	case wire.TypeBookmark:
		return s.bookmark(frame.Object)
	case wire.TypeError:
		status, err := wire.DecodeStatus(frame.Object)
		if err != nil {
			return err
		}
		return statusError(status)
	}
	switch {
	case s.initial:
		s.alarm.reset(initialWait)
	case s.patient:
		s.alarm.reset(silenceWait)
	}
	if s.count%256 == 0 {
		s.Sink.Flush()
	}
	return nil
}

// advance moves the resume point; initial events come in order of their keys
// and move nothing.
func (s *stream) advance(raw []byte) {
	if s.initial {
		return
	}
	if rv, err := wire.Text(s.Resource.Encoding, raw, wire.ResourceVersion); err == nil && rv != "" {
		s.rv = strings.Clone(rv)
	}
}

const initialEnd = "k8s.io/initial-events-end"

func (s *stream) bookmark(raw []byte) error {
	meta, err := wire.ParseMeta(s.Resource.Encoding, raw)
	if err != nil {
		return err
	}
	rv := strings.Clone(meta.ResourceVersion)
	if s.initial {
		if v, _ := meta.Annotation(initialEnd); v != "true" {
			return nil
		}
		s.initial = false
		s.rv = rv
		s.Sink.End(rv)
		s.synced()
		s.alarm.off()
		return nil
	}
	s.rv = rv
	s.Sink.Progress(rv)
	s.patient = true
	s.alarm.reset(silenceWait)
	return nil
}

// pause reports what ended the connection and waits before the next.
func (f *Feed) pause(ctx context.Context, kick <-chan struct{}, err error) {
	wait := time.Duration(0)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case errors.Is(err, errMissing):
		f.absent()
		wait = missingRetry
	default:
		f.failures++
		// One broken stream is no outage: the resume tells.
		if f.failures > 1 || f.rv == "" {
			f.Sink.Disconnected(err)
		}
		wait = backoff(f.failures)
		klog.FromContext(ctx).V(2).Info("Source is not connected", "resource", f.Resource.Resource, "failures", f.failures, "retryAfter", wait, "err", err)
	}
	wait = max(wait, retryAfter(err))
	timer := f.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-kick:
	case <-ctx.Done():
	}
}

// absent serves a resource that the source does not have as an empty one.
func (f *Feed) absent() {
	f.rv = ""
	f.Sink.Begin()
	f.Sink.End("0")
}

// backoff doubles up to maxBackoff and spreads by half.
func backoff(failures int) time.Duration {
	d := maxBackoff
	if failures < 8 {
		d = min(minBackoff<<(failures-1), maxBackoff)
	}
	return d/2 + rand.N(d/2) //nolint:gosec // jitter needs no secret
}
