package membercache

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
)

// Source is a joined member, or the control plane.
type Source struct {
	Name cache.ClusterName
	// UID of the cluster's kube-system namespace; another UID under the same
	// name is another cluster. Empty is not checked.
	UID types.UID
	// Order is the place in the join order.
	Order int
	// Config reaches the API server with an identity that may read.
	Config *rest.Config
	// EverSynced says that some process had synced the source before.
	EverSynced bool
}

// SourceState is how far one resource of a source has got.
type SourceState struct {
	Resource schema.GroupVersionResource
	merge.State
}

// source is a running source: its feeds in the order in which they wait for
// one another.
type source struct {
	Source
	cache  *Cache
	large  chan struct{} // turns of the feeds at large pages
	runs   []*run
	ctx    context.Context // of start
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// run is one feed of a source, and what must be synced before it starts.
type run struct {
	feed   *feed.Feed
	synced chan struct{} // closed at the first complete state
	after  []*run
}

// firstWait bounds how long a feed waits for those whose objects its own refer
// to. It only saves events: references that resolve later are served anew.
const firstWait = 10 * time.Second

// SetSource adds a source, or changes its config or its place in the order.
func (c *Cache) SetSource(s Source) error {
	if len(s.Name) > 48 || strings.ContainsAny(string(s.Name), "./ ") {
		return fmt.Errorf("%w: cluster name %q", ErrConfig, s.Name)
	}
	if s.Config == nil {
		return fmt.Errorf("%w: cluster %q has no config", ErrConfig, s.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.sources[s.Name]
	if ok && old.UID != s.UID && old.UID != "" {
		c.removeLocked(old)
		ok = false
	}
	for _, other := range c.sources {
		if other.Name != s.Name && s.UID != "" && other.UID == s.UID {
			return fmt.Errorf("%w: cluster %q is known as %q already", ErrConfig, s.Name, other.Name)
		}
	}
	c.known.join(c, s)
	if ok {
		changed := !reflect.DeepEqual(old.Config, s.Config)
		old.Source = s
		for _, col := range c.collectionsOf(s.Name) {
			col.Join(s.Name, s.Order, s.EverSynced)
		}
		if changed {
			for _, r := range old.runs {
				r.feed.Reconfigure(s.Config)
			}
		}
		return nil
	}
	n := c.newSource(s)
	c.sources[s.Name] = n
	if c.ctx != nil {
		n.start(c.ctx)
	}
	return nil
}

// Expect says that a source belongs to the whole although it cannot be fed yet:
// answers wait for it if it was ever synced, and say that it is missing if not.
// A source that is fed stays as it is.
func (c *Cache) Expect(name cache.ClusterName, order int, everSynced bool, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, fed := c.sources[name]; fed {
		return
	}
	for _, col := range c.collectionsOf(name) {
		col.Join(name, order, everSynced).Disconnected(why)
	}
}

// RemoveSource ends a source; its objects are DELETED.
func (c *Cache) RemoveSource(name cache.ClusterName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.sources[name]; ok {
		c.removeLocked(s)
		return
	}
	c.known.leave(c, name) // one that was only expected
}

func (c *Cache) removeLocked(s *source) {
	if s.cancel != nil {
		s.cancel()
	}
	s.done.Wait()
	c.known.leave(c, s.Name)
	c.index.Forget(s.Name)
	delete(c.sources, s.Name)
}

// SetAbsent declares that nobody is to wait for a source that is not loaded.
func (c *Cache) SetAbsent(name cache.ClusterName, absent bool) {
	for _, col := range c.collections {
		col.SetAbsent(name, absent)
	}
}

// SourceStates gives the state of every source and resource.
func (c *Cache) SourceStates() map[cache.ClusterName][]SourceState {
	all := map[cache.ClusterName][]SourceState{}
	for _, col := range c.collections {
		for name, st := range col.States() {
			all[name] = append(all[name], SourceState{Resource: col.Resource().GroupVersionResource, State: st})
		}
	}
	return all
}

// collectionsOf lists the collections that a source feeds.
func (c *Cache) collectionsOf(name cache.ClusterName) []*collection {
	var own []*collection
	for _, col := range c.collections {
		if name != cache.ControlPlane || col.Resource().FromControlPlane {
			own = append(own, col)
		}
	}
	return own
}

// newSource makes the feeds: managed copies and Nodes first, then what Pods refer
// to, then Pods, then the rest.
func (c *Cache) newSource(s Source) *source {
	n := &source{Source: s, cache: c, large: make(chan struct{}, 1)}
	var before []*run
	if s.Name != cache.ControlPlane {
		for _, res := range c.managed() {
			before = append(before, n.add(res, managedSelector, "", newCopies(c, s.Name, res), nil))
		}
	}
	stages := [4][]*collection{}
	for _, col := range c.collectionsOf(s.Name) {
		i := stageOf(col.Resource())
		stages[i] = append(stages[i], col)
	}
	for _, stage := range stages {
		var runs []*run
		for _, col := range stage {
			sink := col.Join(s.Name, s.Order, s.EverSynced)
			runs = append(runs, n.add(col.Resource(), "", sink.ResumePoint(), sink, before))
		}
		before = append(before, runs...)
	}
	return n
}

func (n *source) add(res cache.Resource, selector, from string, sink feed.Sink, after []*run) *run {
	r := &run{synced: make(chan struct{}), after: slices.Clip(after)}
	counters, resource := n.cache.counters, res.Resource
	warn := newLimiter(n.cache.cfg.Now, time.Minute)
	name := n.Name
	r.feed = feed.New(n.Config, feed.Options{
		Resource:      res,
		LabelSelector: selector,
		Metadata:      selector != "",
		From:          from,
		Sink:          &firstSync{Sink: sink, done: sync.OnceFunc(func() { close(r.synced) }), hold: n.hold},
		Clock:         n.cache.cfg.Now,
		Large:         n.large,
		Check:         n.cache.identities.check(n.Name, n.UID, n.cache.cfg.Now),
		Dropped: func(err error) {
			counters.dropped.WithLabelValues(resource).Inc()
			if warn.allow() {
				klog.Background().Info("Object of a source cannot be read and is left out", "cluster", name, "resource", resource, "err", err)
			}
		},
		Relisted: func() { counters.relists.WithLabelValues(string(name), resource).Inc() },
		Resumed:  func() { counters.resumes.WithLabelValues(string(name), resource).Inc() },
	})
	n.runs = append(n.runs, r)
	return r
}

func (n *source) start(parent context.Context) {
	ctx, cancel := context.WithCancel(klog.NewContext(parent, klog.FromContext(parent).WithValues("cluster", n.Name)))
	n.cancel, n.ctx = cancel, ctx
	for _, r := range n.runs {
		n.done.Add(1)
		n.cache.feeds.Go(func() {
			defer n.done.Done()
			r.wait(ctx, n.cache)
			r.feed.Run(ctx)
		})
	}
}

// wait returns when the feeds before this one are synced, or took too long.
func (r *run) wait(ctx context.Context, c *Cache) {
	timer := c.cfg.Now.NewTimer(firstWait)
	defer timer.Stop()
	for _, b := range r.after {
		select {
		case <-b.synced:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// hold waits until this process numbers the events; false where the source ends
// before that.
func (n *source) hold() bool {
	return n.cache.cfg.Replica == nil || n.cache.awaitHold(n.ctx)
}

// Progress implements feed.Sink: it says nothing of what was not let through.
func (f *firstSync) Progress(rv string) {
	if f.hold() {
		f.Sink.Progress(rv)
	}
}

// firstSync tells when the first complete state is there, and lets nothing
// through that may not be numbered now.
type firstSync struct {
	feed.Sink
	done func()
	hold func() bool
}

func (f *firstSync) Put(raw []byte) error {
	if !f.hold() {
		return nil
	}
	return f.Sink.Put(raw)
}

func (f *firstSync) Delete(raw []byte) error {
	if !f.hold() {
		return nil
	}
	return f.Sink.Delete(raw)
}

func (f *firstSync) End(rv string) {
	if !f.hold() {
		return
	}
	f.Sink.End(rv)
	f.done()
}

// Connected implements feed.Sink: a feed that resumes has its state already.
func (f *firstSync) Connected() {
	f.Sink.Connected()
	f.done()
}
