package store

import (
	"syscall"
	"testing"

	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// BenchmarkAscend reads the heads of 5,000 packed Pods, as a LIST does.
func BenchmarkAscend(b *testing.B) {
	const pods = 5000
	names := wire.FieldsOf("", "Pod").Names
	s := New(0, Limits{Bytes: 1}, clock.RealClock{}, &pack.Packer{Fields: names, Arena: arena.New()})
	for i := range pods {
		s.Commit(&cache.Event{Type: cache.Added, RV: uint64(i) + 1, Object: cachetest.RealisticObject(b, names, i, uint64(i)+1)})
	}
	s.Publish()
	s.PackAll()
	snap := s.Present()
	for _, bc := range []struct {
		name  string
		touch func(o *cache.Object) int
	}{
		{"heads", func(*cache.Object) int { return 1 }},
		{"select", func(o *cache.Object) int {
			return len(o.Labels.Get("pod-template-hash")) + len(o.Fields.Get("spec.nodeName")) + 1
		}},
		{"bytes", func(o *cache.Object) int { return len(o.Raw()) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				n := 0
				snap.Ascend(cache.Key{}, func(o *cache.Object) bool {
					n += bc.touch(o)
					return true
				})
				if n < pods {
					b.Fatalf("%d", n)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/pods, "cpu-ns/pod")
		})
	}
}

// cpuTime is what the process has used, in nanoseconds: the collector's too.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
