package engine

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	selecting map[target]struct{}            // those of by that have a selector
	namespace map[string]map[string]struct{} // namespace -> clusters that need it
}

// target names what is needed; with a selector, all that it matches.
type target struct {
	group, kind, namespace, name string

	selector string
}

func (t target) groupKind() schema.GroupKind { return schema.GroupKind{Group: t.group, Kind: t.kind} }

// targetOf resolves what a reference leaves out.
func targetOf(r dependencies.Ref, namespace string) target {
	gv, err := schema.ParseGroupVersion(cmp.Or(r.APIVersion, "v1"))
	if err != nil {
		gv = schema.GroupVersion{} // names nothing
	}
	return target{group: gv.Group, kind: r.Kind, namespace: cmp.Or(r.Namespace, namespace), name: r.Name, selector: r.Selector}
}

func newNeeds() *needs {
	return &needs{
		of: map[marks.Key][]target{}, by: map[target]map[marks.Key]struct{}{},
		selecting: map[target]struct{}{}, namespace: map[string]map[string]struct{}{},
	}
}

// selects says whether the target is chosen by labels, and these are chosen.
func (t target) selects(has labels.Labels) bool {
	s, err := labels.Parse(t.selector)
	return err == nil && t.selector != "" && s.Matches(has)
}

// set replaces the needs of a workload and returns those that were added or
// dropped.
func (n *needs) set(key marks.Key, refs []dependencies.Ref) []target {
	wanted := make([]target, 0, len(refs))
	for _, r := range refs {
		wanted = append(wanted, targetOf(r, key.Namespace))
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
			delete(n.selecting, t)
		}
	}
	for _, t := range wanted {
		changed[t] = struct{}{}
		if n.by[t] == nil {
			n.by[t] = map[marks.Key]struct{}{}
			if t.selector != "" {
				n.selecting[t] = struct{}{}
			}
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

// workloads that need a template, by its name or its labels.
func (n *needs) workloads(key marks.Key, has labels.Labels) []marks.Key {
	n.mu.RLock()
	defer n.mu.RUnlock()
	named := target{group: key.Group, kind: key.Kind, namespace: key.Namespace, name: key.Name}
	found := maps.Clone(n.by[named])
	for t := range n.selecting {
		if t.group != named.group || t.kind != named.kind || t.namespace != named.namespace {
			continue
		}
		if t.selects(has) {
			if found == nil {
				found = map[marks.Key]struct{}{}
			}
			maps.Copy(found, n.by[t])
		}
	}
	return slices.Collect(maps.Keys(found))
}

// kinds of what is needed.
func (n *needs) kinds() []schema.GroupKind {
	n.mu.RLock()
	defer n.mu.RUnlock()
	seen := map[schema.GroupKind]struct{}{}
	for t := range n.by {
		seen[t.groupKind()] = struct{}{}
	}
	return slices.Collect(maps.Keys(seen))
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
