package seats

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// pods is a collection of which only its size is asked.
type pods struct {
	cache.Collection
	stats cache.Stats
}

func (p pods) Resource() cache.Resource {
	return cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
}

func (p pods) Stats() cache.Stats { return p.stats }

func TestTracker(t *testing.T) {
	inner := flowcontrolrequest.NewStorageObjectCountTracker()
	inner.Set("pods", storage.Stats{})
	inner.Set("configmaps", storage.Stats{ObjectCount: 7})
	cached := pods{stats: cache.Stats{Objects: map[cache.ClusterName]int{"m1": 300, "m2": 100}, Bytes: 4000}}
	tracker := &Tracker{
		StorageObjectCountTracker: inner,
		Count:                     CountsOf(func() []cache.Collection { return []cache.Collection{cached} }),
	}
	tests := map[string]storage.Stats{
		"pods":       {ObjectCount: 400, EstimatedAverageObjectSizeBytes: 10},
		"configmaps": {ObjectCount: 7},
	}
	for name, want := range tests {
		if got, err := tracker.Get(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	if _, err := tracker.Get("pods.metrics.k8s.io"); err == nil {
		t.Error("Pods of another group were counted as Pods")
	}
}

func TestTrackerOfAnEmptyCache(t *testing.T) {
	tracker := &Tracker{Count: CountsOf(func() []cache.Collection { return []cache.Collection{pods{}} })}
	if got, err := tracker.Get("pods"); err != nil || got.ObjectCount != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
