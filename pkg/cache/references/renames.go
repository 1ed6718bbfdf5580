package references

import (
	"sync"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Named is an object of one cluster, by the name that it has there.
type Named struct {
	Kind Kind
	Key  cache.Key
}

// Renames knows which objects are served under another name than in their
// cluster. It answers for kinds that refer to one another in circles, whose
// collections can therefore not ask each other while they are locked. It is
// safe for concurrent use.
type Renames struct {
	mu     sync.RWMutex
	served map[cache.ClusterName]map[Named]*renamed
	dirty  map[cache.ClusterName]map[Named]struct{}
	notify func()
}

type renamed struct {
	name string
	gone time.Time // zero while the object is there
}

func newRenames(notify func()) *Renames {
	return &Renames{
		served: map[cache.ClusterName]map[Named]*renamed{},
		dirty:  map[cache.ClusterName]map[Named]struct{}{},
		notify: notify,
	}
}

// ServedName is the name under which an object is served. A namespaced object
// may refer to one without a namespace, and not say so.
func (x *Renames) ServedName(cluster cache.ClusterName, kind Kind, key cache.Key) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	known := x.served[cluster]
	if len(known) == 0 {
		return key.Name
	}
	r, ok := known[Named{kind, key}]
	if !ok && key.Namespace != "" {
		r, ok = known[Named{kind, cache.Key{Name: key.Name}}]
	}
	if ok {
		return r.name
	}
	return key.Name
}

// Set says under which name an object is served now.
func (x *Renames) Set(cluster cache.ClusterName, kind Kind, key cache.Key, name string) {
	if x.ServedName(cluster, kind, key) == name {
		x.revive(cluster, Named{kind, key})
		return
	}
	n := Named{kind, key}
	x.mu.Lock()
	if name == key.Name {
		delete(x.served[cluster], n)
	} else {
		if x.served[cluster] == nil {
			x.served[cluster] = map[Named]*renamed{}
		}
		x.served[cluster][n] = &renamed{name: name}
	}
	x.markLocked(cluster, n)
	x.mu.Unlock()
	x.notify()
}

// revive keeps the name of an object that came back while it lingered.
func (x *Renames) revive(cluster cache.ClusterName, n Named) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, ok := x.served[cluster][n]; ok {
		r.gone = time.Time{}
	}
}

// Gone says that an object is there no more. Its name lingers, since what
// refers to it is about to go too.
func (x *Renames) Gone(cluster cache.ClusterName, kind Kind, key cache.Key, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, ok := x.served[cluster][Named{kind, key}]; ok {
		r.gone = now
	}
}

func (x *Renames) markLocked(cluster cache.ClusterName, n Named) {
	if x.dirty[cluster] == nil {
		x.dirty[cluster] = map[Named]struct{}{}
	}
	x.dirty[cluster][n] = struct{}{}
}

// expire ends what lingers; it reports whether anything changed.
func (x *Renames) expire(now time.Time) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for cluster, known := range x.served {
		for n, r := range known {
			if !r.gone.IsZero() && now.Sub(r.gone) > Linger {
				delete(known, n)
				x.markLocked(cluster, n)
				changed = true
			}
		}
	}
	return changed
}

func (x *Renames) forget(cluster cache.ClusterName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.served, cluster)
	delete(x.dirty, cluster)
}

// Drain returns the objects that are served under another name than before.
func (x *Renames) Drain() map[cache.ClusterName]map[Named]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.dirty
	x.dirty = map[cache.ClusterName]map[Named]struct{}{}
	return d
}
