package membercache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// A read of the latest state has every write that was completed before it, by
// whichever replica:
//
//	at the one that leads         its Lease holds by the clock: what is here; once
//	                              after a takeover, what the members have by then
//	at one whose Lease ran out    nothing: another may lead
//	at one that follows           what the leader has now; while that cannot be
//	                              asked, whoever takes over; after that, what is
//	                              here, which Gaps tells

const (
	// takeoverWait bounds how long a read waits for another leader: a takeover
	// is shorter.
	takeoverWait = 12 * time.Second
	// lapsedWait bounds how long a read waits for a Lease to be renewed.
	lapsedWait   = 3 * time.Second
	presentRetry = 50 * time.Millisecond
	// catchUpWait bounds how long reads wait for members after a takeover: those
	// that do not answer are told of by Gaps.
	catchUpWait = 3 * time.Second
)

// presence is how a read stands to the latest state.
type presence int

const (
	upToDate presence = iota // what is to be read is known
	notYet                   // it may be known in a moment
	asItIs                   // what is here is all that there is, and Gaps says so
	refused                  // what is here may lack what another process acknowledged
)

// judge decides about a read that has waited for some time, and failed to hear
// of the latest state as err says. silent is how long the leader was not heard.
func judge(following bool, err error, waited, silent time.Duration) presence {
	switch {
	case err == nil:
		return upToDate
	case following && (waited >= takeoverWait || silent >= takeoverWait):
		return asItIs
	case !following && waited >= lapsedWait:
		return refused
	}
	return notYet
}

// present makes a read not older than any completed write.
func (c *collection) present(ctx context.Context, at cache.Version) (cache.Version, error) {
	r := c.cache.cfg.Replica
	if r == nil || at.Match != cache.Latest {
		return at, nil
	}
	now := c.cache.cfg.Now
	for start := now.Now(); ; {
		following := c.cache.Following()
		latest, err := c.latest(ctx, following, at)
		var silent time.Duration
		if since, _, behind := r.Behind(); behind {
			silent = now.Since(since)
		}
		switch judge(following, err, now.Since(start), silent) {
		case upToDate:
			return latest, nil
		case asItIs:
			return at, nil
		case refused:
			return at, fmt.Errorf("%w: %w", cache.ErrElsewhere, err)
		case notYet:
		}
		timer := now.NewTimer(presentRetry)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return at, ctx.Err()
		}
	}
}

// latest asks once what a read must not be older than.
func (c *collection) latest(ctx context.Context, following bool, at cache.Version) (cache.Version, error) {
	r := c.cache.cfg.Replica
	if following {
		rv, err := r.Present(ctx, c.Resource().GroupVersionResource)
		return cache.Version{Match: cache.NotOlderThan, RV: rv}, err
	}
	if _, err := r.Leading(); err != nil {
		return at, err
	}
	if err := c.catchUp(ctx); err != nil {
		return at, err
	}
	_, err := r.Leading() // a Lease that ran out meanwhile makes it worthless
	return at, err
}

// takeover is what a collection lacks since this process leads: what the one
// before had acknowledged is in the members, and need not have come here.
type takeover struct {
	complete <-chan struct{} // closed when all sources are set
	once     sync.Once
	done     chan struct{} // closed when this collection has what they had
}

// catchUp waits, once after a takeover, until what the members have is here.
func (c *collection) catchUp(ctx context.Context) error {
	t := c.behind
	if t == nil {
		return nil
	}
	t.once.Do(func() {
		go func() {
			defer close(t.done)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), catchUpWait)
			defer cancel()
			select {
			case <-t.complete:
			case <-ctx.Done():
			}
			if err := c.AwaitFresh(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("Not every source is up to date after the takeover", "resource", c.Resource().Resource, "err", err)
			}
		}()
	})
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
