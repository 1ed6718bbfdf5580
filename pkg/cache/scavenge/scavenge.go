// Package scavenge gives memory back to the system after peaks: left alone, the
// runtime keeps what a peak needed for a long time.
//
//	sizes of the heap -> much is unused? -> collect and release
package scavenge

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

const (
	// every is how often memory is given back at most.
	every = 30 * time.Second
	// over is how much, in bytes, the heap may keep of what it does not use.
	over = 16 << 20
)

// Run gives memory back until ctx ends.
func Run(ctx context.Context, now clock.WithTicker) {
	tick := now.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			Now()
		}
	}
}

// Now gives back what is unused where it is much. It collects garbage first.
func Now() {
	sample := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(sample)
	if much(sample[0].Value.Uint64(), sample[1].Value.Uint64(), sample[2].Value.Uint64(), sample[3].Value.Uint64()) {
		debug.FreeOSMemory()
	}
}

// much: half of what is unused within spans counts, since it may stay there.
func much(free, unused, live, objects uint64) bool {
	garbage := objects - min(live, objects)
	return free+unused/2+garbage > max(over, live/2)
}
