package references

import (
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// intern returns a string of its own that equal strings share.
func intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

// Linger is how long a target answers after its object is gone: its dependents
// are about to go too, and are not to be shown with another owner before.
const Linger = 30 * time.Second

// Index knows which objects of the members stand for which of the control
// plane. It remembers what was asked for in vain, so that only those who asked
// hear of what comes later. It is safe for concurrent use.
type Index struct {
	mu      sync.Mutex
	targets map[id]*entry
	asked   map[id]struct{}
	dirty   map[cache.ClusterName]map[types.UID]struct{}
	notify  func()
	renames *Renames
}

// maxAsked bounds the memory of vain questions. Owners that come so late that
// theirs was forgotten are mostly marked by Set's seen.
const maxAsked = 1 << 17

type id struct {
	cluster cache.ClusterName
	uid     types.UID
}

type entry struct {
	target Target
	gone   time.Time // zero while the object is there
}

// NewIndex makes an empty index. notify is called when there is something to
// Drain, with no lock held that a reader of the index could want.
func NewIndex(notify func()) *Index {
	return &Index{
		targets: map[id]*entry{}, asked: map[id]struct{}{},
		dirty: map[cache.ClusterName]map[types.UID]struct{}{}, notify: notify,
		renames: newRenames(notify),
	}
}

// Renames are the names of the members' objects.
func (x *Index) Renames() *Renames { return x.renames }

// Owner implements Owners.
func (x *Index) Owner(cluster cache.ClusterName, uid types.UID) (Target, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := id{cluster, uid}
	if e, ok := x.targets[key]; ok {
		return e.target, true
	}
	if _, ok := x.asked[key]; !ok {
		if len(x.asked) >= maxAsked {
			clear(x.asked)
		}
		key.uid = types.UID(strings.Clone(string(uid)))
		x.asked[key] = struct{}{}
	}
	return Target{}, false
}

// Set says that a member's object stands for a target. seen says that it was
// known before and stood for itself, so that anybody may have dependents of it.
func (x *Index) Set(cluster cache.ClusterName, uid types.UID, t Target, seen bool) {
	x.mu.Lock()
	key := id{cluster, types.UID(strings.Clone(string(uid)))}
	e, ok := x.targets[key]
	_, asked := x.asked[key]
	changed := asked || ok && e.target != t || !ok && seen
	x.targets[key] = &entry{target: t}
	delete(x.asked, key)
	if changed {
		x.markLocked(key)
	}
	x.mu.Unlock()
	if changed {
		x.notify()
	}
}

// Unset says that a member's object is gone, or stands for nothing any more.
func (x *Index) Unset(cluster cache.ClusterName, uid types.UID, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.targets[id{cluster, uid}]; ok && e.gone.IsZero() {
		e.gone = now
	}
}

// Expire ends targets whose object has been gone for longer than Linger.
func (x *Index) Expire(now time.Time) {
	changed := x.renames.expire(now)
	x.mu.Lock()
	for key, e := range x.targets {
		if !e.gone.IsZero() && now.Sub(e.gone) > Linger {
			delete(x.targets, key)
			x.markLocked(key)
			changed = true
		}
	}
	x.mu.Unlock()
	if changed {
		x.notify()
	}
}

// Forget drops all that is known of a cluster.
func (x *Index) Forget(cluster cache.ClusterName) {
	x.renames.forget(cluster)
	x.mu.Lock()
	defer x.mu.Unlock()
	for key := range x.targets {
		if key.cluster == cluster {
			delete(x.targets, key)
		}
	}
	for key := range x.asked {
		if key.cluster == cluster {
			delete(x.asked, key)
		}
	}
	delete(x.dirty, cluster)
}

func (x *Index) markLocked(key id) {
	if x.dirty[key.cluster] == nil {
		x.dirty[key.cluster] = map[types.UID]struct{}{}
	}
	x.dirty[key.cluster][key.uid] = struct{}{}
}

// Drain returns the UIDs of owners that resolve otherwise than before.
func (x *Index) Drain() map[cache.ClusterName]map[types.UID]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.dirty
	x.dirty = map[cache.ClusterName]map[types.UID]struct{}{}
	return d
}
