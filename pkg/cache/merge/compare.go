package merge

import (
	"maps"
	"strings"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Difference is one object of a source that is not here as it should be. RVs are
// the source's; zero where there is none.
type Difference struct {
	Key          cache.Key // in the source
	Source, Here uint64
}

// Differences compares what is here of a source with all that it had at an RV,
// which the feed has passed. What has changed in the source since then can look
// like a difference: one that is real is there the next time too.
func (c *Collection) Differences(cluster cache.ClusterName, rv uint64, seen map[cache.Key]uint64) (all []Difference) {
	c.mu.RLock()
	snap := c.store.Present()
	here := make(map[cache.Key]uint64, 16)
	for h, was := range c.hidden {
		if h.Cluster == cluster {
			here[h.Source] = was.sourceRV
		}
	}
	c.mu.RUnlock()
	missing := maps.Clone(seen)
	compare := func(key cache.Key, here uint64) {
		at, ok := seen[key]
		delete(missing, key)
		if ok && here < at || !ok && here <= rv {
			key = cache.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)}
			all = append(all, Difference{Key: key, Source: at, Here: here})
		}
	}
	for key, at := range here {
		compare(key, at)
	}
	snap.Scan(func(o *cache.Object) bool {
		if o.Cluster == cluster {
			compare(sourceKey(o), o.SourceRV)
		}
		return true
	})
	for key, at := range missing {
		all = append(all, Difference{Key: key, Source: at})
	}
	return all
}

func sourceKey(o *cache.Object) cache.Key {
	return cache.Key{Namespace: o.Key.Namespace, Name: o.SourceName}
}

// Passed says whether the live feed of a source has passed an RV.
func (c *Collection) Passed(cluster cache.ClusterName, rv uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok := c.sources[cluster]
	return ok && s.state.Connected && s.state.Position >= rv
}
