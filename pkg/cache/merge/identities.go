package merge

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Identities say which cluster each source is, by its UID. It is locked last.
type Identities struct {
	mu   sync.RWMutex
	uids map[cache.ClusterName]types.UID
}

// Get gives the UID of a source, empty where it is not known.
func (x *Identities) Get(name cache.ClusterName) types.UID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.uids[name]
}

// Is says whether a source is known to be that cluster.
func (x *Identities) Is(name cache.ClusterName, uid types.UID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	known, ok := x.uids[name]
	return ok && known == uid
}

// Set notes the UID of a source.
func (x *Identities) Set(name cache.ClusterName, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.uids == nil {
		x.uids = map[cache.ClusterName]types.UID{}
	}
	x.uids[name] = uid
}

// Forget drops a source, and says whether it was known.
func (x *Identities) Forget(name cache.ClusterName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.uids[name]
	delete(x.uids, name)
	return ok
}

// All gives what is known.
func (x *Identities) All() map[cache.ClusterName]types.UID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return maps.Clone(x.uids)
}
