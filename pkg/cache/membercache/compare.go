package membercache

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
)

// What the cache has is compared with what the members have, by the metadata of
// every object: nobody would notice a mistake otherwise before it hurts.

const (
	// DefaultCompareEvery is ample where nothing is wrong: each comparison lists
	// the metadata of every object.
	DefaultCompareEvery = time.Hour
	// compareWait is how long a feed may take to pass what was listed.
	compareWait = 3 * time.Minute
	compareLook = 100 * time.Millisecond
	// namedDifferences is how many of them a message names.
	namedDifferences = 5
)

// Difference is one object that the cache does not have as its source has it.
type Difference struct {
	Cluster  cache.ClusterName
	Resource schema.GroupVersionResource
	merge.Difference
}

func (d Difference) String() string {
	return fmt.Sprintf("%s %s of %q: RV %d there, %d here", d.Resource.Resource, d.Key, d.Cluster, d.Source, d.Here)
}

// Compare compares every resource of every source that is followed, and gives
// what is different twice in a row. What cannot be compared is no difference.
func (c *Cache) Compare(ctx context.Context) (all []Difference, err error) {
	for _, s := range c.present() {
		for _, col := range c.collectionsOf(s.Name) {
			found, compareErr := col.compare(ctx, s)
			if compareErr != nil && err == nil {
				err = fmt.Errorf("cluster %q: %s: %w", s.Name, col.Resource().Resource, compareErr)
			}
			all = append(all, found...)
		}
	}
	return all, err
}

func (c *Cache) present() (sources []Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		sources = append(sources, s.Source)
	}
	return sources
}

// compare compares one resource of a source, and counts the outcome.
func (c *collection) compare(ctx context.Context, s Source) (found []Difference, err error) {
	counters, resource := c.cache.counters, c.Resource().Resource
	defer func() {
		outcome := "equal"
		switch {
		case err != nil:
			outcome = "failed"
		case len(found) > 0:
			outcome = "different"
		}
		counters.compared.WithLabelValues(string(s.Name), resource, outcome).Inc()
		if err == nil {
			counters.different.WithLabelValues(string(s.Name), resource).Set(float64(len(found)))
		}
	}()
	differences, err := c.differences(ctx, s)
	if len(differences) == 0 || err != nil {
		return nil, err
	}
	again, err := c.differences(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, d := range again {
		if slices.Contains(differences, d) {
			found = append(found, Difference{s.Name, c.Resource().GroupVersionResource, d})
		}
	}
	return found, nil
}

func (c *collection) differences(ctx context.Context, s Source) ([]merge.Difference, error) {
	if err := c.cache.identities.check(s.Name, s.UID, c.cache.cfg.Now)(ctx, s.Config); err != nil {
		return nil, err
	}
	seen := map[cache.Key]uint64{}
	rv, err := feed.Revisions(ctx, s.Config, c.Resource(), func(key cache.Key, rv uint64) { seen[key] = rv })
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	for !c.Passed(s.Name, rv) {
		select {
		case <-wait.Done():
			return nil, fmt.Errorf("the feed does not reach RV %d: %w", rv, wait.Err())
		case <-c.cache.cfg.Now.After(compareLook):
		}
	}
	return c.Differences(s.Name, rv, seen), nil
}

// compareAll begins with one resource of one source after the other, so that a
// member is asked for one list at a time.
func (c *Cache) compareAll(ctx context.Context) {
	var running sync.Map // by comparison
	var waits sync.WaitGroup
	defer waits.Wait()
	for ctx.Err() == nil {
		sources := c.present()
		pairs := max(1, len(sources)*len(c.collections))
		pause := func() bool {
			every := cmp.Or(c.cfg.CompareEvery, DefaultCompareEvery) / time.Duration(pairs)
			select {
			case <-ctx.Done():
				return false
			case <-c.cfg.Now.After(every/2 + rand.N(every)): //nolint:gosec // jitter needs no secret
				return true
			}
		}
		if len(sources) == 0 && !pause() {
			return
		}
		for _, s := range sources {
			for _, col := range c.collectionsOf(s.Name) {
				if !pause() {
					return
				}
				if st, ok := col.States()[s.Name]; !ok || !st.Connected {
					continue
				}
				// A feed passes what was listed with its next bookmark, a minute
				// later where nothing happens.
				what := comparison{s.Name, col.Resource().GroupVersionResource}
				if _, runs := running.LoadOrStore(what, nil); runs {
					continue
				}
				waits.Go(func() {
					defer running.Delete(what)
					col.compareAndTell(ctx, s)
				})
			}
		}
	}
}

// comparison of one resource of one source.
type comparison struct {
	source   cache.ClusterName
	resource schema.GroupVersionResource
}

func (c *collection) compareAndTell(ctx context.Context, s Source) {
	found, err := c.compare(ctx, s)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Cache is not compared with a source", "cluster", s.Name, "resource", c.Resource().Resource, "err", err)
	case len(found) > 0:
		klog.FromContext(ctx).Error(nil, "Cache differs from a source", "cluster", s.Name, "resource", c.Resource().Resource, "objects", len(found), "some", found[:min(len(found), namedDifferences)])
	}
}
