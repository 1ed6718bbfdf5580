package membercache

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// members reads ISTHMUS_MEMBERS, "m1=/path/to/kubeconfig,m2=...": real clusters
// to run against. Without it these tests are skipped.
func members(t *testing.T) map[cache.ClusterName]*rest.Config {
	t.Helper()
	env := os.Getenv("ISTHMUS_MEMBERS")
	if env == "" {
		t.Skip("ISTHMUS_MEMBERS names no clusters")
	}
	all := map[cache.ClusterName]*rest.Config{}
	for part := range strings.SplitSeq(env, ",") {
		name, path, _ := strings.Cut(part, "=")
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		all[cache.ClusterName(name)] = config
	}
	return all
}

func newTestCache(t *testing.T) *Cache {
	t.Helper()
	seq, err := sequence.Open(t.Context(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// TestLiveEqualsMembers: the merged collections hold what the members hold.
func TestLiveEqualsMembers(t *testing.T) {
	configs := members(t)
	c := newTestCache(t)
	order := 0
	for name, config := range configs {
		order++
		uid, err := feed.ClusterUID(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetSource(Source{Name: name, UID: uid, Order: order, Config: config, EverSynced: true}); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for _, col := range c.Collections() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := c.AwaitLoaded(ctx, col.Resource().GroupVersionResource); err != nil {
			t.Fatal(err)
		}
		if err := col.AwaitFresh(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		t.Logf("%s after %s: %+v gaps %v", col.Resource().Resource, time.Since(start), col.Stats(), col.Gaps())
		compareWithMembers(t, col, configs)
	}
}

// compareWithMembers waits for the collection to hold what the members hold;
// while they are written to, the two are never read at the same moment.
func compareWithMembers(t *testing.T, col cache.Collection, configs map[cache.ClusterName]*rest.Config) {
	t.Helper()
	var diff string
	for range 20 {
		if diff = difference(t, col, configs); diff == "" {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Error(diff)
}

func difference(t *testing.T, col cache.Collection, configs map[cache.ClusterName]*rest.Config) string {
	t.Helper()
	got := map[cache.ClusterName]map[cache.Key]uint64{}
	snap, err := col.Snapshot(t.Context(), cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	snap.Ascend(cache.Key{}, func(o *cache.Object) bool {
		if got[o.Cluster] == nil {
			got[o.Cluster] = map[cache.Key]uint64{}
		}
		got[o.Cluster][cache.Key{Namespace: o.Key.Namespace, Name: o.SourceName}] = o.SourceRV
		return true
	})
	for name, config := range configs {
		want := map[cache.Key]uint64{}
		if _, err := feed.Revisions(t.Context(), config, col.Resource(), func(k cache.Key, rv uint64) { want[k] = rv }); err != nil {
			t.Fatal(err)
		}
		if len(want) > 0 && !maps.Equal(got[name], want) {
			return fmt.Sprintf("%s of %s: %d objects, the member has %d", col.Resource().Resource, name, len(got[name]), len(want))
		}
	}
	return ""
}
