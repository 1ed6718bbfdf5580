package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// serveWatch answers a WATCH. An error means that nothing has been written.
func (h *Handler) serveWatch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	k := h.kindOf(info, c.Resource())
	f, err := h.negotiate(r, k, eventStream)
	if err != nil {
		return err
	}
	q, err := h.parseQuery(r, info, k, c.Resource())
	if err != nil {
		return err
	}
	if err := h.authorizeSelection(r.Context(), info, &q.selection); err != nil {
		return err
	}
	stream := &watchStream{
		handler:   h,
		permit:    h.permitter(r.Context(), info),
		kind:      k,
		query:     &q,
		encoder:   newEventEncoder(k, f, h.tables),
		batch:     chunk,
		bookmarks: newBookmarkClock(time.Now(), watchTimeout(q.TimeoutSeconds, h.MinRequestTimeout), h.BookmarkInterval),
	}
	ctx, cancel := context.WithCancel(r.Context())
	if err := stream.begin(ctx, c); err != nil && !errors.Is(err, cache.ErrExpired) {
		cancel()
		return err
	} else if err != nil {
		stream.failed = statusError(err, info)
	}
	if stream.watcher != nil {
		warn(w, warnings(q.selection.gaps(c.Gaps())))
	}
	if wsstream.IsWebSocketRequest(r) {
		stream.encoder.asMessages()
		stream.batch = 0
		metrics.RecordLongRunning(r, info, metrics.APIServerComponent, func() { stream.serveWebSocket(ctx, cancel, w, r) })
		cancel()
		return nil
	}
	if err := stream.open(w, r); err != nil {
		cancel()
		return err
	}
	serve := func() {
		defer cancel()
		metrics.RecordLongRunning(r, info, metrics.APIServerComponent, func() { stream.serve(ctx, cancel) })
	}
	// The chain offers to run the stream after it has unwound its own stack.
	if task := routine.TaskFrom(r.Context()); task != nil {
		task.Func = serve
		return nil
	}
	serve()
	return nil
}

// maxWatch bounds what a client may ask for, far below an overflow.
const maxWatch = 365 * 24 * time.Hour

// watchTimeout is the life of a watch: what the client asks for, else a random
// time so that clients which began together do not return together.
func watchTimeout(asked *int64, least time.Duration) time.Duration {
	if asked != nil && *asked > 0 {
		return time.Duration(min(*asked, int64(maxWatch/time.Second))) * time.Second
	}
	return least + rand.N(least) //nolint:gosec // jitter
}

// lastBookmark is how long before its end a watch says where it stands.
const lastBookmark = 2 * time.Second

// bookmarkClock says when a watch has to wake up.
type bookmarkClock struct {
	end, next time.Time
	interval  time.Duration
}

func newBookmarkClock(now time.Time, timeout, interval time.Duration) bookmarkClock {
	c := bookmarkClock{end: now.Add(timeout), interval: interval}
	c.advance(now)
	return c
}

// advance sets the next bookmark: an interval from now, or shortly before the
// end where that comes first. After the last bookmark only the end is left.
func (c *bookmarkClock) advance(now time.Time) {
	last := c.end.Add(-lastBookmark)
	c.next = now.Add(c.interval)
	if !now.Before(last) {
		c.next = c.end
	} else if c.next.After(last) {
		c.next = last
	}
}

// eventBody is where the framed events go.
type eventBody interface {
	// write may hold back until flush; send does both.
	write(p []byte) error
	flush() error
	send(p []byte) error
	close()
}

// watchStream is one stream of events. Its goroutine is the request's.
type watchStream struct {
	handler   *Handler
	kind      *kind
	query     *query
	encoder   *eventEncoder
	bookmarks bookmarkClock

	initial cache.Snapshot // nil when no initial events are sent
	watcher cache.Watcher  // nil when failed is set
	failed  error          // told as the only event
	permit  func(cache.ClusterName) error
	body    eventBody
	batch   int // bytes of initial events that are sent together
}

// begin takes the snapshot of the initial events and registers the watcher
// from its very RV, so that nothing is lost between the two.
func (x *watchStream) begin(ctx context.Context, c cache.Collection) error {
	q := x.query
	from := q.version.RV
	wanted := q.SendInitialEvents != nil && *q.SendInitialEvents
	if wanted {
		if err := x.handler.awaitComplete(ctx, c, &q.selection, q.strict); err != nil {
			return err
		}
		if _, err := x.handler.completeness(c, &q.selection, q.strict); err != nil {
			return err
		}
	}
	if wanted || from == 0 {
		snap, err := c.Snapshot(ctx, q.version)
		if err != nil {
			return err
		}
		from = snap.RV()
		if wanted {
			x.initial = snap
		}
	}
	watcher, err := c.Watch(ctx, from)
	if err != nil {
		return err
	}
	x.watcher = watcher
	return nil
}

// open sends the header.
func (x *watchStream) open(w http.ResponseWriter, r *http.Request) error {
	compress := x.initial != nil && x.query.AllowWatchBookmarks && acceptsGzip(r)
	body, err := openWatchBody(w, x.encoder.contentType(), compress, x.handler.WriteTimeout)
	if err != nil {
		return err
	}
	x.body = body
	return nil
}

// serve sends the events until the client, the server, the clock or the
// history ends the watch.
func (x *watchStream) serve(ctx context.Context, cancel context.CancelFunc) {
	defer x.body.close()
	if signals := request.ServerShutdownSignalFrom(ctx); signals != nil {
		go func() {
			select {
			case <-signals.ShuttingDown():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	if x.failed != nil {
		utilflowcontrol.WatchInitialized(ctx)
		x.end(ctx, x.failed)
		return
	}
	err := x.sendInitial(ctx)
	utilflowcontrol.WatchInitialized(ctx)
	if err == nil {
		err = x.follow(ctx)
	}
	x.end(ctx, err)
}

// errClientGone wraps an error of the connection: nobody is left to be told.
var errClientGone = errors.New("client is gone")

// end tells the client why the stream ends, where it can still be told and
// where a clean end would not do.
func (x *watchStream) end(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, errClientGone) || errors.Is(err, cache.ErrClosed) {
		return
	}
	if err := x.body.send(x.encoder.failure(statusError(err, &request.RequestInfo{}))); err != nil {
		klog.FromContext(ctx).V(4).Info("Client left before it was told why its watch ends", "err", err)
	}
}

// sendInitial sends the snapshot as ADDED events and, to those who take
// bookmarks, the one that ends them.
func (x *watchStream) sendInitial(ctx context.Context) error {
	if x.initial == nil {
		return nil
	}
	var buf []byte
	var err error
	for o := range objectsOf(x.query.selection.runs(x.initial, cache.Key{}, x.kind.namespaced)) {
		if err := x.permit(o.Cluster); err != nil {
			return err
		}
		if buf, err = x.encoder.appendEvent(buf, eventAdded, o); err != nil {
			return err
		}
		if len(buf) < x.batch {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.body.send(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	if x.query.AllowWatchBookmarks {
		mark, err := x.kind.bookmark(x.initial.RV(), true)
		if err != nil {
			return err
		}
		if buf, err = x.encoder.appendEvent(buf, eventBookmark, mark); err != nil {
			return err
		}
	}
	x.initial = nil // lets go of the snapshot
	return x.body.send(buf)
}

// errWake ends a wait for events because a bookmark or the end is due.
var errWake = errors.New("time to wake up")

// follow sends live events and bookmarks. A nil error is the end of the time.
func (x *watchStream) follow(ctx context.Context) error {
	for {
		if err := x.followUntil(ctx, x.bookmarks.next); !errors.Is(err, errWake) {
			return err
		}
		now := time.Now()
		if !now.Before(x.bookmarks.end) {
			return nil
		}
		if x.query.AllowWatchBookmarks {
			if err := x.sendBookmark(); err != nil {
				return err
			}
		}
		x.bookmarks.advance(now)
	}
}

// followUntil sends live events until the given time. Under a flood of events
// the wait never runs out, so that the time is looked at in between too.
func (x *watchStream) followUntil(ctx context.Context, wake time.Time) error {
	wait, cancel := context.WithDeadline(ctx, wake)
	defer cancel()
	for {
		events, err := x.watcher.Next(wait)
		if len(events) > 0 {
			if err := x.sendEvents(events); err != nil {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case wait.Err() != nil:
			return errWake
		case err != nil:
			return err
		}
	}
}

func (x *watchStream) sendEvents(events []*cache.Event) error {
	for _, e := range events {
		b, err := x.encoder.event(&x.query.selection, e)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			continue
		}
		if err := x.permit(e.Object.Cluster); err != nil {
			return err
		}
		if err := x.body.write(b); err != nil {
			return err
		}
	}
	return x.body.flush()
}

func (x *watchStream) sendBookmark() error {
	mark, err := x.kind.bookmark(x.watcher.Progress(), false)
	if err != nil {
		return err
	}
	b, err := x.encoder.appendEvent(nil, eventBookmark, mark)
	if err != nil {
		return err
	}
	return x.body.send(b)
}
