package gateway

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// fakeCollection is the naive model of a collection: a log, and its replay.
type fakeCollection struct {
	cache.Collection // what the read half does not use panics
	res              cache.Resource

	mu      sync.Mutex
	changed chan struct{}
	log     []*cache.Event
	rv      uint64
	floor   uint64 // history begins after it
	gaps    []cache.Gap
	closed  bool
	fresh   error
	// packed, if set, is what every snapshot is.
	packed func() cache.Snapshot
}

func newFakeCollection(res cache.Resource) *fakeCollection {
	return &fakeCollection{res: res, rv: 100, floor: 100, changed: make(chan struct{})}
}

func (c *fakeCollection) Resource() cache.Resource { return c.res }

// stateAt replays the log up to an RV.
func (c *fakeCollection) stateAt(rv uint64) fakeSnapshot {
	byKey := map[cache.Key]*cache.Object{}
	at := uint64(100)
	for _, e := range c.log {
		if e.RV > rv {
			break
		}
		at = e.RV
		if e.Type == cache.Deleted {
			delete(byKey, e.Object.Key)
		} else {
			byKey[e.Object.Key] = e.Object
		}
	}
	s := fakeSnapshot{rv: at}
	for _, o := range byKey {
		s.objects = append(s.objects, o)
	}
	slices.SortFunc(s.objects, func(a, b *cache.Object) int { return a.Key.Compare(b.Key) })
	return s
}

type fakeSnapshot struct {
	rv      uint64
	objects []*cache.Object
}

func (s fakeSnapshot) RV() uint64 { return s.rv }
func (s fakeSnapshot) Len() int   { return len(s.objects) }
func (s fakeSnapshot) Ascend(from cache.Key, fn func(*cache.Object) bool) {
	i, _ := slices.BinarySearchFunc(s.objects, from, func(o *cache.Object, k cache.Key) int { return o.Key.Compare(k) })
	for _, o := range s.objects[i:] {
		if !fn(o) {
			return
		}
	}
}

func (c *fakeCollection) Snapshot(_ context.Context, at cache.Version) (cache.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.packed != nil:
		return c.packed(), nil
	case at.RV > c.rv:
		return nil, cache.ErrTooNew
	case at.Match == cache.Exact && at.RV < c.floor:
		return nil, cache.ErrExpired
	case at.Match == cache.Exact:
		return c.stateAt(at.RV), nil
	}
	return c.stateAt(c.rv), nil
}

func (c *fakeCollection) Get(ctx context.Context, key cache.Key, at cache.Version) (*cache.Object, error) {
	s, err := c.Snapshot(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, o := range s.(fakeSnapshot).objects {
		if o.Key == key {
			return o, nil
		}
	}
	return nil, cache.ErrNotFound
}

func (c *fakeCollection) Gaps() []cache.Gap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.gaps)
}

func (c *fakeCollection) setGaps(gaps ...cache.Gap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps = gaps
	c.wake()
}

func (c *fakeCollection) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *fakeCollection) AwaitFresh(context.Context) error { return c.fresh }

func (c *fakeCollection) Watch(_ context.Context, from uint64) (cache.Watcher, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case from > c.rv:
		return nil, cache.ErrTooNew
	case from < c.floor:
		return nil, cache.ErrExpired
	}
	return &fakeWatcher{c: c, at: from}, nil
}

type fakeWatcher struct {
	c  *fakeCollection
	at uint64
}

func (w *fakeWatcher) Progress() uint64 { return w.at }

func (w *fakeWatcher) Next(ctx context.Context) ([]*cache.Event, error) {
	for {
		w.c.mu.Lock()
		if w.c.closed {
			w.c.mu.Unlock()
			return nil, cache.ErrClosed
		}
		if w.at < w.c.floor {
			w.c.mu.Unlock()
			return nil, cache.ErrExpired
		}
		var out []*cache.Event
		for _, e := range w.c.log {
			if e.RV > w.at && len(out) < 7 {
				out = append(out, e)
			}
		}
		changed := w.c.changed
		w.c.mu.Unlock()
		if len(out) > 0 {
			w.at = out[len(out)-1].RV
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

// expire drops the history.
func (c *fakeCollection) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv++
	c.floor = c.rv
	c.wake()
}

// protoType is a typed object that can be put into the fake.
type protoType interface {
	metav1.Object
	Marshal() ([]byte, error)
}

// put adds or changes a typed object of a cluster.
func (c *fakeCollection) put(t testing.TB, cluster cache.ClusterName, obj protoType, f fields.Set) *cache.Object {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv += 10
	obj.SetResourceVersion(formatRV(c.rv))
	l := obj.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[cache.ClusterLabel] = string(cluster)
	obj.SetLabels(l)
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(string(cluster) + "-" + obj.GetNamespace() + "-" + obj.GetName()))
	}
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o := &cache.Object{
		Key:     cache.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()},
		Cluster: cluster, SourceName: obj.GetName(), UID: obj.GetUID(), RV: c.rv,
		Labels: labels.Set(obj.GetLabels()), Fields: f, Body: cache.Bytes(raw),
	}
	c.append(o)
	return o
}

// putRaw adds or changes an object with the bytes given.
func (c *fakeCollection) putRaw(o *cache.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv += 10
	o.RV = c.rv
	c.append(o)
}

func (c *fakeCollection) append(o *cache.Object) {
	e := &cache.Event{Type: cache.Added, Object: o, RV: o.RV, Time: time.Now()}
	for _, old := range c.stateAt(c.rv).objects {
		if old.Key == o.Key {
			e.Type, e.Prev = cache.Modified, old
		}
	}
	c.log = append(c.log, e)
	c.wake()
}

// remove deletes an object; last is its state with the RV of the deletion.
func (c *fakeCollection) remove(t testing.TB, obj protoType) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rv += 10
	obj.SetResourceVersion(formatRV(c.rv))
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	key := cache.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	for _, old := range c.stateAt(c.rv).objects {
		if old.Key == key {
			last := *old
			last.RV, last.Body = c.rv, cache.Bytes(raw)
			c.log = append(c.log, &cache.Event{Type: cache.Deleted, Object: &last, Prev: old, RV: c.rv})
		}
	}
	c.wake()
}

type fakeCache struct{ collections []*fakeCollection }

func (f *fakeCache) Collection(gvr schema.GroupVersionResource) (cache.Collection, bool) {
	for _, c := range f.collections {
		if c.res.GroupVersionResource == gvr {
			return c, true
		}
	}
	return nil, false
}

func (f *fakeCache) Collections() []cache.Collection { return nil }

func (f *fakeCache) AwaitLoaded(ctx context.Context, gvr schema.GroupVersionResource) error {
	for {
		for _, c := range f.collections {
			if c.res.GroupVersionResource != gvr {
				continue
			}
			c.mu.Lock()
			changed := c.changed
			c.mu.Unlock()
			err := notLoadedOf(c.Gaps())
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return err
			case <-changed:
			}
		}
	}
}
