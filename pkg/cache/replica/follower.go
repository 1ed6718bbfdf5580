package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

const (
	// silence is how long a stream may say nothing: it has a beat each second.
	silence = 4 * time.Second
	// behindAfter is how old the last beat may be before readers are told.
	behindAfter = 5 * time.Second
	retryFirst  = 100 * time.Millisecond
	retryLast   = time.Second
	maxAnswer   = 4 << 10
)

var (
	errNoLeader = errors.New("no replica is known to number the events")
	errSilent   = errors.New("the stream has been silent for too long")
	// errEpoch is wrapped by what was said in an epoch that is over.
	errEpoch = errors.New("an earlier epoch")
)

// Follower feeds a cache with the logs of the one that leads.
type Follower struct {
	cache  *membercache.Cache
	roles  Roles
	client *http.Client
	now    clock.WithTicker

	mu    sync.Mutex
	heard map[schema.GroupVersionResource]time.Time
	why   error

	heads map[schema.GroupVersionResource]*batch
}

// NewFollower makes a follower of whoever leads, reached by a client that shows
// the certificate of a replica.
func NewFollower(c *membercache.Cache, roles Roles, client *http.Client, now clock.WithTicker) *Follower {
	f := &Follower{
		cache: c, roles: roles, client: client, now: now,
		heard: map[schema.GroupVersionResource]time.Time{}, heads: map[schema.GroupVersionResource]*batch{}, why: errNoLeader,
	}
	for _, col := range c.Collections() {
		gvr := col.Resource().GroupVersionResource
		f.heard[gvr] = now.Now()
		f.heads[gvr] = &batch{}
	}
	return f
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, col := range f.cache.Collections() {
		wg.Go(func() { f.follow(ctx, col.Resource()) })
	}
	wg.Wait()
}

func (f *Follower) follow(ctx context.Context, res cache.Resource) {
	anew, wait := false, retryFirst
	for ctx.Err() == nil {
		live, err := f.stream(ctx, res, anew)
		if ctx.Err() != nil {
			return
		}
		// What does not follow from what is here is repaired by a complete state.
		anew = errors.Is(err, pack.ErrMalformed) || errors.Is(err, journal.ErrDamaged)
		if live {
			wait = retryFirst
		}
		f.failed(err)
		klog.FromContext(ctx).V(2).Info("Log of the leading replica is not followed", "resource", res.Resource, "retryAfter", wait, "err", err)
		timer := f.now.NewTimer(wait)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, retryLast)
	}
}

func (f *Follower) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why = err
}

// ask makes a request to the replica that leads.
func (f *Follower) ask(ctx context.Context, path string, query url.Values) (*http.Response, uint64, error) {
	address, epoch := f.roles.Leader()
	if address == "" {
		return nil, 0, errNoLeader
	}
	query.Set("epoch", strconv.FormatUint(epoch, 10))
	u := url.URL{Scheme: "https", Host: address, Path: Prefix + path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, readErr := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, 0, errors.Join(fmt.Errorf("replica %s answers %s: %s", address, resp.Status, strings.TrimSpace(string(text))), readErr)
	}
	answered, err := strconv.ParseUint(resp.Header.Get(epochHeader), 10, 64)
	if err == nil {
		err = f.current(answered)
	}
	if err != nil {
		return nil, 0, errors.Join(err, resp.Body.Close())
	}
	return resp, answered, nil
}

// current refuses what is of an epoch that is over.
func (f *Follower) current(epoch uint64) error {
	if _, known := f.roles.Leader(); epoch < known {
		return fmt.Errorf("%w: %d, while %d is known", errEpoch, epoch, known)
	}
	return nil
}

// stream follows one stream to its end. live says whether it came to the present.
func (f *Follower) stream(ctx context.Context, res cache.Resource, anew bool) (live bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer timer.Stop()
	gvr := res.GroupVersionResource
	var from uint64
	if !anew {
		if from, err = f.cache.Head(gvr); err != nil {
			return false, err
		}
	}
	resp, epoch, err := f.ask(ctx, logPath+nameOf(gvr), url.Values{"from": {strconv.FormatUint(from, 10)}})
	if err != nil {
		return false, cause(ctx, err)
	}
	defer resp.Body.Close()
	frames, more, err := journal.NewReader(resp.Body, Identity(res))
	if err != nil {
		return false, err
	}
	if more != epochMark+strconv.FormatUint(epoch, 10) {
		return false, fmt.Errorf("%w: the stream is of %q", errEpoch, more)
	}
	taker, err := f.cache.Follower(gvr)
	if err != nil {
		return false, err
	}
	for {
		kind, payload, err := frames.Next()
		if err != nil {
			return taker.Live(), cause(ctx, err)
		}
		timer.Stop() // what this process does with it is no silence
		if err := f.current(epoch); err != nil {
			return taker.Live(), err
		}
		if err := taker.Take(kind, payload); err != nil {
			return taker.Live(), err
		}
		timer.Reset(silence)
		if taker.Live() {
			f.hears(gvr)
		}
	}
}

// cause prefers why a stream was given up to the error that came of it.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

func (f *Follower) hears(gvr schema.GroupVersionResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard[gvr] = f.now.Now()
}

// Lag is how long ago the log that is furthest behind was heard of.
func (f *Follower) Lag() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lag time.Duration
	now := f.now.Now()
	for _, at := range f.heard {
		lag = max(lag, now.Sub(at))
	}
	return lag
}

// Behind says since when the logs are not followed, and why.
func (f *Follower) Behind() (since time.Time, why string, ok bool) {
	lag := f.Lag()
	if lag <= behindAfter {
		return time.Time{}, "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now.Now().Add(-lag), "the leading replica is not heard: " + f.why.Error(), true
}

// Present asks the replica that leads for the head of a collection.
func (f *Follower) Present(ctx context.Context, gvr schema.GroupVersionResource) (uint64, error) {
	b, ok := f.heads[gvr]
	if !ok {
		return 0, fmt.Errorf("%w: %s is not cached", cache.ErrNotFound, gvr)
	}
	return b.ask(ctx, func(ctx context.Context) (uint64, error) {
		resp, _, err := f.ask(ctx, headPath+nameOf(gvr), url.Values{})
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(string(text), 10, 63)
	})
}
