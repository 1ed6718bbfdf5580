package membercache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
)

// Replica says how a cache that is one of several stands to the others. A cache
// that is alone has none.
type Replica interface {
	// Holds answers nil while this process may number events: nobody else does.
	Holds() error
	// Leading answers without an error while nobody else numbers events, also
	// when this process is about to let another do so.
	Leading() (epoch uint64, err error)
	// Present gives an RV of a collection that is not below that of any write
	// which was completed before the call, as the process that numbers the
	// events knows it. The error says that it cannot be asked.
	Present(ctx context.Context, gvr schema.GroupVersionResource) (uint64, error)
	// Behind says since when this process has not heard of what happens, and
	// why; ok is false where it is up to date.
	Behind() (since time.Time, why string, ok bool)
}

// Snapshot implements cache.Collection.
func (c *collection) Snapshot(ctx context.Context, at cache.Version) (cache.Snapshot, error) {
	at, err := c.present(ctx, at)
	if err != nil {
		return nil, err
	}
	return c.Collection.Snapshot(ctx, at)
}

// Get implements cache.Collection.
func (c *collection) Get(ctx context.Context, key cache.Key, at cache.Version) (*cache.Object, error) {
	at, err := c.present(ctx, at)
	if err != nil {
		return nil, err
	}
	return c.Collection.Get(ctx, key, at)
}

// Gaps implements cache.Collection: a replica that is behind says so.
func (c *collection) Gaps() []cache.Gap {
	gaps := c.Collection.Gaps()
	r := c.cache.cfg.Replica
	if r == nil {
		return gaps
	}
	if since, why, ok := r.Behind(); ok {
		gaps = append(gaps, cache.Gap{
			Cluster: cache.AllClusters, Kind: cache.Stale, Since: since,
			Reason: fmt.Sprintf("showing what was known at %s: %s", since.UTC().Format(time.RFC3339), why),
		})
	}
	return gaps
}

// holds says whether this process may number events now.
func (c *Cache) holds() bool {
	return c.cfg.Replica == nil || !c.Following() && c.cfg.Replica.Holds() == nil
}

// holdEvery is how often a feed asks whether it may go on.
const holdEvery = 20 * time.Millisecond

// awaitHold keeps a feed from what it would number while another process may do
// so. Without it the numbers themselves would wait, and readers with them. false
// says that the feed has ended before.
func (c *Cache) awaitHold(ctx context.Context) bool {
	for !c.holds() {
		if ctx.Err() != nil {
			return false
		}
		timer := c.cfg.Now.NewTimer(holdEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return true
}

// Following says whether another process numbers the events.
func (c *Cache) Following() bool { return c.following.Load() }

// StreamName names a collection in a stream, and LogName what its frames are.
func StreamName(gvr schema.GroupVersionResource) string {
	return strings.Join([]string{gvr.Resource, gvr.Version, gvr.Group}, ".")
}

// LogName says of what a stream is, and in which form.
func LogName(res cache.Resource) string { return identityOfFiles(res) }

// Stream writes the log of a collection behind an RV to another process.
func (c *Cache) Stream(ctx context.Context, gvr schema.GroupVersionResource, from uint64, out merge.Out) error {
	col, ok := c.byResource[gvr]
	switch {
	case !ok:
		return fmt.Errorf("%w: %s is not cached", cache.ErrNotFound, gvr)
	case c.cfg.Replica == nil || c.Following():
		return merge.ErrFollows
	}
	return col.Stream(ctx, out, from, c.cfg.Now, func() error {
		_, err := c.cfg.Replica.Leading()
		return err
	})
}

// Head is the RV of the last event of a collection.
func (c *Cache) Head(gvr schema.GroupVersionResource) (uint64, error) {
	col, ok := c.byResource[gvr]
	if !ok {
		return 0, fmt.Errorf("%w: %s is not cached", cache.ErrNotFound, gvr)
	}
	return col.Head(), nil
}

// Follower takes the stream of a collection.
func (c *Cache) Follower(gvr schema.GroupVersionResource) (*merge.Follower, error) {
	col, ok := c.byResource[gvr]
	if !ok {
		return nil, fmt.Errorf("%w: %s is not cached", cache.ErrNotFound, gvr)
	}
	return col.Follower(), nil
}

// ErrNotLoaded is wrapped by what a replica that has no state yet cannot do.
var ErrNotLoaded = errors.New("no complete state has come from the other replica yet")

// Loaded answers nil when every collection has a complete state.
func (c *Cache) Loaded() error {
	for _, col := range c.collections {
		if !col.Loaded() {
			return fmt.Errorf("%w: %s", ErrNotLoaded, col.Resource().Resource)
		}
	}
	return nil
}

// LastHead is the highest RV of all collections: numbers go on above it.
func (c *Cache) LastHead() (last uint64) {
	for _, col := range c.collections {
		last = max(last, col.Head())
	}
	return last
}

// Lead makes this the process that numbers the events; its clock has been
// started. Sources that are set from now on go on from where the other was.
func (c *Cache) Lead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Following() {
		return
	}
	c.complete = make(chan struct{})
	for _, col := range c.collections {
		col.Lead()
		col.behind = &takeover{complete: c.complete, done: make(chan struct{})}
	}
	c.known.write(c)
	c.following.Store(false)
}
