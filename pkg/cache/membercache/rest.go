package membercache

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	packEvery = time.Second
	// giveBackEvery is how often memory is given back to the system at most.
	giveBackEvery = 30 * time.Second
	// giveBackOver is how much the heap may keep of what it does not use.
	giveBackOver = 16 << 20
)

// rest packs what has become quiet, and gives memory back after peaks.
func (c *Cache) rest(ctx context.Context) {
	tick := c.cfg.Now.NewTicker(packEvery)
	defer tick.Stop()
	given := c.cfg.Now.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		for _, col := range c.collections {
			col.Store().Pack()
		}
		if now := c.cfg.Now.Now(); now.Sub(given) >= giveBackEvery {
			given = now
			giveBack()
		}
	}
}

// giveBack returns unused memory of the heap to the system where it is much:
// left alone, the runtime keeps what a peak needed for a long time.
func giveBack() {
	sample := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(sample)
	free, unused, live, objects := sample[0].Value.Uint64(), sample[1].Value.Uint64(), sample[2].Value.Uint64(), sample[3].Value.Uint64()
	garbage := objects - min(live, objects)
	if free+unused/2+garbage > max(giveBackOver, live/2) {
		debug.FreeOSMemory()
	}
}
