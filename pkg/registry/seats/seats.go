// Package seats tells priority and fairness how wide a LIST of a member kind
// is. The chain estimates the seats of a LIST by the number of objects in its
// own storage, which is zero for kinds whose objects live in members.
package seats

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Counter counts the cached objects of a resource and their bytes; false when
// it is not cached.
type Counter func(gr schema.GroupResource) (storage.Stats, bool)

// CountsOf reads the counts from the collections of a cache.
func CountsOf(collections func() []cache.Collection) Counter {
	return func(gr schema.GroupResource) (storage.Stats, bool) {
		for _, c := range collections() {
			if c.Resource().GroupResource() != gr {
				continue
			}
			return size(c.Stats()), true
		}
		return storage.Stats{}, false
	}
}

func size(s cache.Stats) storage.Stats {
	var out storage.Stats
	for _, objects := range s.Objects {
		out.ObjectCount += int64(objects)
	}
	if out.ObjectCount > 0 {
		out.EstimatedAverageObjectSizeBytes = s.Bytes / out.ObjectCount
	}
	return out
}

// Tracker puts the counts of member kinds before the storage's own.
type Tracker struct {
	flowcontrolrequest.StorageObjectCountTracker
	Count Counter
}

// Get implements StorageObjectCountTracker. name is "resource" or
// "resource.group".
func (t *Tracker) Get(name string) (storage.Stats, error) {
	resource, group, _ := strings.Cut(name, ".")
	if stats, ok := t.Count(schema.GroupResource{Group: group, Resource: resource}); ok {
		return stats, nil
	}
	return t.StorageObjectCountTracker.Get(name)
}
