// Package fleet joins membership, member cache and gateway handler into one
// working part, which runs inside multicluster-apiserver or as a
// cluster-gateway process.
//
//	membership.Directory -> SetSource/RemoveSource -> member cache -> gateway
//	                     -> Members (transports)   -----------------> gateway
//	member cache states  -> membership.SetCacheSynced
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway"
	"github.com/isthmus-dev/isthmus/pkg/registry/memberkinds"
)

const (
	// controlPlaneOrder puts the control plane before every member.
	controlPlaneOrder = math.MinInt32
	// reportEvery is how often the state of the cache is reported.
	reportEvery = time.Second
	// completeEvery is how often it is looked whether all Clusters are followed.
	completeEvery = 20 * time.Millisecond
	// readyWithin bounds how long a member that does not answer keeps the
	// cache from being ready.
	readyWithin = 30 * time.Second
)

// Membership is what the fleet needs of the membership controller.
type Membership interface {
	membership.Directory
	HasSynced() bool
	SetCacheSynced(name string, synced bool, message string)
}

// Config describes a fleet.
type Config struct {
	// ControlPlane reaches the control plane past the router.
	ControlPlane *rest.Config
	Membership   Membership
	// Clock numbers the events.
	Clock *sequence.Clock
	// Resources beside the default ones, or in their place.
	Resources []Resource
	// Authorizer limits permissions to clusters; nil permits all.
	Authorizer authorizer.Authorizer
	// Dir keeps the member cache over a restart; nothing is kept where empty.
	Dir string
	// Replica is set where this fleet is one of several: it reads no member
	// before Lead is closed, when its cache leads and its clock is started.
	Replica membercache.Replica
	Lead    <-chan struct{}
	// CompareEvery is how often the cache is compared with every member.
	CompareEvery time.Duration
}

// Fleet is the assembled gateway.
type Fleet struct {
	cfg     Config
	cache   *membercache.Cache
	handler *gateway.Handler
	kinds   *proxy.Kinds
	limits  *limits
	started time.Time
	printer memberkinds.Printer
}

// New assembles a fleet; nothing runs until Run.
func New(cfg Config) (*Fleet, error) {
	resources := with(membercache.DefaultResources(), cfg.Resources)
	members, err := membercache.New(membercache.Config{
		Clock:     cfg.Clock,
		Pending:   true,
		Dir:       cfg.Dir,
		Resources: resources,
		Replica:   cfg.Replica,

		CompareEvery: cfg.CompareEvery,
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the member cache: %w", err)
	}
	f := &Fleet{cfg: cfg, cache: members, started: time.Now()}
	room, err := askForRoom(cfg.ControlPlane)
	if err != nil {
		return nil, err
	}
	if f.limits, err = newLimits(cfg.ControlPlane); err != nil {
		return nil, err
	}
	f.handler = gateway.New(gateway.Options{
		Cache: members, Members: directory{f}, Authorizer: cfg.Authorizer, Columns: f.printer.Columns, Room: room, Limit: f.limits.of,
	})
	f.kinds = proxy.NewKinds(Classes(cfg.Resources))
	return f, nil
}

// Gateway answers routed requests.
func (f *Fleet) Gateway() proxy.Gateway { return f.handler }

// Cache is the member cache, for metrics and counts.
func (f *Fleet) Cache() *membercache.Cache { return f.cache }

// Collectors are the metrics of the cache and of what is served from it.
func (f *Fleet) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.cache, f.handler}
}

// Kinds is the table that routes requests.
func (f *Fleet) Kinds() *proxy.Kinds { return f.kinds }

// Run feeds the cache from all members, or from the leading replica, until ctx
// ends.
func (f *Fleet) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { f.cache.Run(ctx); return nil })
	group.Go(func() error { return f.printer.Run(ctx, f.cfg.ControlPlane) })
	group.Go(func() error {
		if f.follows(ctx) {
			return nil
		}
		return f.feed(ctx)
	})
	return group.Wait()
}

// follows returns when this fleet leads, or with true when ctx ends before.
func (f *Fleet) follows(ctx context.Context) bool {
	if f.cfg.Replica == nil {
		return false
	}
	select {
	case <-f.cfg.Lead:
		return false
	case <-ctx.Done():
		return true
	}
}

// feed reads the members until ctx ends.
func (f *Fleet) feed(ctx context.Context) error {
	err := f.cache.SetSource(membercache.Source{
		Name: cache.ControlPlane, Order: controlPlaneOrder, Config: f.cfg.ControlPlane, EverSynced: true,
	})
	if err != nil {
		return fmt.Errorf("feed from the control plane: %w", err)
	}
	cancel := f.cfg.Membership.Subscribe(func(c membership.Change) { f.follow(ctx, c) })
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { f.complete(ctx) })
	wg.Go(func() { f.limits.informer.Run(ctx.Done()) })
	wg.Go(func() { f.report(ctx) })
	wg.Wait()
	return nil
}

// complete ends the time in which no answer passes for a whole one: when every
// Cluster that exists has been followed.
func (f *Fleet) complete(ctx context.Context) {
	tick := time.NewTicker(completeEvery)
	defer tick.Stop()
	for !f.allFollowed() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	var exist []cache.ClusterName
	for _, m := range f.cfg.Membership.List() {
		exist = append(exist, cache.ClusterName(m.Name))
	}
	f.cache.Complete(exist...)
}

func (f *Fleet) allFollowed() bool {
	if !f.cfg.Membership.HasSynced() {
		return false
	}
	known := f.cache.SourceStates()
	return !slices.ContainsFunc(f.cfg.Membership.List(), func(m membership.Member) bool {
		return known[cache.ClusterName(m.Name)] == nil
	})
}

// follow applies one change of the directory to the cache.
func (f *Fleet) follow(ctx context.Context, c membership.Change) {
	m := c.Member
	name := cache.ClusterName(m.Name)
	if c.Kind == membership.Left {
		f.cache.RemoveSource(name)
		return
	}
	if m.Read == nil || m.UID == "" {
		// Not usable yet, or not any more: what it had stays as it was. An
		// answer must not omit it in silence.
		f.cache.Expect(name, int(m.Order), m.EverSynced, unusable(m))
		f.cache.SetAbsent(name, m.Absent)
		return
	}
	err := f.cache.SetSource(membercache.Source{
		Name: name, UID: m.UID, Order: int(m.Order), Config: m.Read, EverSynced: m.EverSynced,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Member is not cached", "cluster", m.Name)
		f.cache.Expect(name, int(m.Order), false, err)
		f.cfg.Membership.SetCacheSynced(m.Name, false, err.Error())
		return
	}
	f.cache.SetAbsent(name, m.Absent)
}

func unusable(m membership.Member) error {
	switch {
	case m.Message != "":
		return errors.New(m.Message)
	case m.Read == nil:
		return errors.New("there are no usable credentials for it")
	}
	return errors.New("its identity is not confirmed yet")
}

// report tells membership how far the cache has got with each member.
func (f *Fleet) report(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.forgetLeft()
		for name, states := range f.cache.SourceStates() {
			if name == cache.ControlPlane {
				continue
			}
			synced, message := summarize(states)
			f.cfg.Membership.SetCacheSynced(string(name), synced, message)
		}
	}
}

// forgetLeft drops what was restored of members that left while nothing ran.
func (f *Fleet) forgetLeft() {
	restored := f.cache.Restored()
	if len(restored) == 0 || !f.cfg.Membership.HasSynced() {
		return
	}
	for _, name := range restored {
		if _, ok := f.cfg.Membership.Get(string(name)); !ok && name != cache.ControlPlane {
			f.cache.RemoveSource(name)
		}
	}
}

// summarize says whether every resource of a member is live, and if not, what
// is wrong with which.
func summarize(states []membercache.SourceState) (synced bool, message string) {
	var behind []string
	for _, s := range states {
		switch {
		case !s.Synced:
			behind = append(behind, s.Resource.Resource+" not loaded yet")
		case s.Err != nil:
			behind = append(behind, fmt.Sprintf("%s: %v", s.Resource.Resource, s.Err))
		}
	}
	slices.Sort(behind)
	if len(behind) > 0 {
		return false, strings.Join(behind, "; ")
	}
	return len(states) > 0, "all watched resources are live"
}

// served says whether every resource of a member is there, live or as it was
// last.
func served(states []membercache.SourceState) (loaded bool, why string) {
	for _, s := range states {
		if !s.Synced {
			_, why = summarize(states)
			return false, why
		}
	}
	return len(states) > 0, "not joined yet"
}

// Ready says whether every member that answers is loaded. A member that does
// not answer is waited for at most half a minute.
func (f *Fleet) Ready() error {
	if f.cache.Following() {
		return f.cache.Loaded()
	}
	if !f.cfg.Membership.HasSynced() {
		return errors.New("the list of clusters is not read yet")
	}
	if time.Since(f.started) > readyWithin {
		return nil
	}
	states := f.cache.SourceStates()
	var waiting []string
	for _, m := range f.cfg.Membership.List() {
		if m.Absent {
			continue
		}
		if loaded, why := served(states[cache.ClusterName(m.Name)]); !loaded {
			waiting = append(waiting, fmt.Sprintf("cluster %s: %s", m.Name, why))
		}
	}
	if len(waiting) > 0 {
		return errors.New(strings.Join(waiting, "; "))
	}
	return nil
}

// directory presents the members to the gateway.
type directory struct{ f *Fleet }

// Get implements gateway.Members.
func (d directory) Get(name cache.ClusterName) (gateway.Member, bool) {
	if name == cache.ControlPlane {
		return d.controlPlane(), true
	}
	m, ok := d.f.cfg.Membership.Get(string(name))
	if !ok {
		return gateway.Member{}, false
	}
	return present(m), true
}

// List implements gateway.Members.
func (d directory) List() []gateway.Member {
	out := []gateway.Member{d.controlPlane()}
	for _, m := range d.f.cfg.Membership.List() {
		out = append(out, present(m))
	}
	return out
}

func (d directory) controlPlane() gateway.Member {
	return gateway.Member{Order: controlPlaneOrder, Ready: true, EverSynced: true, Config: d.f.cfg.ControlPlane, Impersonate: true}
}

// present routes as the user where the Cluster asks for it. Without a usable
// identity for that there is no way then: the one that reads may do more than
// the user.
func present(m membership.Member) gateway.Member {
	out := gateway.Member{
		Name: cache.ClusterName(m.Name), UID: string(m.UID), Order: m.Order,
		Ready: m.Ready, EverSynced: m.EverSynced, Config: m.Read,
	}
	if m.ForUsers {
		out.Config, out.Impersonate = m.Impersonate, true
	}
	return out
}
