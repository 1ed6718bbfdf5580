//go:build !race

package membercache

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident is the memory of this process that is not backed by files, in bytes.
func resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("no RssAnon")
	return 0
}

// podCount is how many Pods are measured; a million takes minutes:
//
//	ISTHMUS_PODS=1000000 go test ./pkg/cache/membercache -run MemoryPerPod -v -timeout 60m
func podCount(t testing.TB) int {
	t.Helper()
	if v := os.Getenv("ISTHMUS_PODS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 5000
}

// measured is a cache with realistic Pods of two clusters, fed as they come
// over the wire.
func measured(t testing.TB, pods int) (*Cache, []*merge.Source) {
	t.Helper()
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		t.Fatal(err)
	}
	col := c.byResource[Pods.GroupVersionResource]
	sources := []*merge.Source{col.Join("m1", 1, false), col.Join("m2", 2, false)}
	for _, s := range sources {
		s.Begin()
	}
	for n, i := range inOrder(pods) { // as an API server sends them
		raw, err := cachetest.RealisticPod(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := sources[n%2].Put(raw); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range sources {
		s.End("100000")
	}
	return c, sources
}

// inOrder gives the numbers of Pods in the order of their keys.
func inOrder(pods int) []int {
	type numbered struct {
		key string
		i   int
	}
	all := make([]numbered, pods)
	for i := range all {
		namespace, name := cachetest.RealisticKey(i)
		all[i] = numbered{namespace + "/" + name, i}
	}
	slices.SortFunc(all, func(a, b numbered) int { return strings.Compare(a.key, b.key) })
	order := make([]int, pods)
	for n, a := range all {
		order[n] = a.i
	}
	return order
}

// TestMemoryPerPod bounds what a Pod costs at rest, index and history included.
func TestMemoryPerPod(t *testing.T) {
	pods := podCount(t)
	if raw, err := cachetest.RealisticPod(1).Marshal(); err != nil {
		t.Fatal(err)
	} else if encoder := raw; len(encoder) < 5000 {
		t.Fatalf("a Pod of %d bytes is not realistic", len(encoder))
	}
	debug.FreeOSMemory()
	before := resident(t)
	start := time.Now()
	c, _ := measured(t, pods)
	t.Logf("filled in %s, RSS %d MiB more", time.Since(start), (resident(t)-before)>>20)
	col := c.byResource[Pods.GroupVersionResource]
	col.Store().PackAll()
	debug.FreeOSMemory()
	time.Sleep(100 * time.Millisecond)
	debug.FreeOSMemory()
	used := resident(t) - before
	live, mapped := c.arena.Stats()
	stats, history := col.Stats(), col.Store().History()
	t.Logf("%d Pods of %d bytes: RSS %d bytes a Pod; heap %d MiB, arena %d of %d MiB, history of %d events in %d MiB",
		pods, stats.Bytes/int64(pods), used/int64(pods), heap()>>20, live>>20, mapped>>20, stats.Log, history.Bytes>>20)
	if perPod := (used - history.Bytes) / int64(pods); perPod > 2048 {
		t.Errorf("a Pod costs %d bytes at rest, without the history", perPod)
	}
	runtime.KeepAlive(c)
}

// BenchmarkPut takes a Pod from bytes to the log.
func BenchmarkPut(b *testing.B) {
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		b.Fatal(err)
	}
	source := c.byResource[Pods.GroupVersionResource].Join("m1", 1, false)
	pods := make([][]byte, 1000)
	for i := range pods {
		if pods[i], err = cachetest.RealisticPod(i).Marshal(); err != nil {
			b.Fatal(err)
		}
	}
	source.Begin()
	source.End("1")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pod, err := wire.Rewrite(cache.Protobuf, pods[i%1000], wire.Edit{ResourceVersion: fmt.Sprint(5000 + i)})
		if err != nil {
			b.Fatal(err)
		}
		if err := source.Put(pod); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
