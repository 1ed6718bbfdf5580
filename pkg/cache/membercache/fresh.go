package membercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
)

// collection adds to the merged collection what needs the members' answers.
type collection struct {
	*merge.Collection
	cache *Cache
	dir   *journal.Dir // nil where nothing is kept over a restart
	// behind is set by Lead, before the cache stops following.
	behind *takeover
}

var _ cache.Collection = &collection{}

// freshWait bounds a read that asks the members.
const freshWait = 5 * time.Second

// AwaitFresh implements cache.Collection.
func (c *collection) AwaitFresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	c.cache.mu.Lock()
	var sources []Source
	for name, s := range c.cache.sources {
		if name != cache.ControlPlane || c.Resource().FromControlPlane {
			sources = append(sources, s.Source)
		}
	}
	c.cache.mu.Unlock()
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(string(a.Name), string(b.Name)) })
	errs := make([]error, len(sources))
	var wg sync.WaitGroup
	for i, s := range sources {
		wg.Go(func() {
			if err := c.awaitSource(ctx, s); err != nil {
				errs[i] = fmt.Errorf("cluster %q: %w", s.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitSource lists the metadata in the source and waits until the cache has
// every object at that version or a later one, and none that is gone.
func (c *collection) awaitSource(ctx context.Context, s Source) error {
	if err := c.cache.identities.check(s.Name, s.UID, c.cache.cfg.Now)(ctx, s.Config); err != nil {
		return err
	}
	seen := map[cache.Key]uint64{}
	rv, err := feed.Revisions(ctx, s.Config, c.Resource(), func(key cache.Key, rv uint64) { seen[key] = rv })
	if err != nil {
		return err
	}
	return c.AwaitSource(ctx, s.Name, rv, seen)
}
