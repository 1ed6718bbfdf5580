package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// needs knows which templates need which others: a workload its ConfigMaps,
// every namespaced template its Namespace. It is memory only and filled from
// the caches before anything is decided.
type needs struct {
	mu        sync.RWMutex
	of        map[marks.Key][]target // workload -> what it needs
	by        map[target]map[marks.Key]struct{}
	namespace map[string]map[string]struct{} // namespace -> clusters that need it
}

// target names what is needed.
type target struct {
	kind, namespace, name string
}

func newNeeds() *needs {
	return &needs{of: map[marks.Key][]target{}, by: map[target]map[marks.Key]struct{}{}, namespace: map[string]map[string]struct{}{}}
}

// set replaces the needs of a workload and returns those that were added or
// dropped.
func (n *needs) set(key marks.Key, refs []dependencies.Ref) []target {
	wanted := make([]target, 0, len(refs))
	for _, r := range refs {
		wanted = append(wanted, target{kind: r.Kind, namespace: key.Namespace, name: r.Name})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.of[key]
	if slices.Equal(old, wanted) {
		return nil
	}
	changed := map[target]struct{}{}
	for _, t := range old {
		changed[t] = struct{}{}
		delete(n.by[t], key)
		if len(n.by[t]) == 0 {
			delete(n.by, t)
		}
	}
	for _, t := range wanted {
		changed[t] = struct{}{}
		if n.by[t] == nil {
			n.by[t] = map[marks.Key]struct{}{}
		}
		n.by[t][key] = struct{}{}
	}
	if len(wanted) == 0 {
		delete(n.of, key)
	} else {
		n.of[key] = wanted
	}
	return slices.Collect(maps.Keys(changed))
}

func (n *needs) needsOf(key marks.Key) []target {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.of[key]
}

// workloads that need a template.
func (n *needs) workloads(key marks.Key) []marks.Key {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if key.Group != "" {
		return nil
	}
	return slices.Collect(maps.Keys(n.by[target{kind: key.Kind, namespace: key.Namespace, name: key.Name}]))
}

// needNamespace records that a cluster needs a namespace; it says whether that
// is new.
func (n *needs) needNamespace(namespace, cluster string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.namespace[namespace][cluster]; ok {
		return false
	}
	if n.namespace[namespace] == nil {
		n.namespace[namespace] = map[string]struct{}{}
	}
	n.namespace[namespace][cluster] = struct{}{}
	return true
}

func (n *needs) clustersOf(namespace string) []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Sorted(maps.Keys(n.namespace[namespace]))
}
