package membercache

import (
	"context"
	"time"
)

const packEvery = time.Second

// rest packs what has become quiet.
func (c *Cache) rest(ctx context.Context) {
	tick := c.cfg.Now.NewTicker(packEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		for _, col := range c.collections {
			col.Store().Pack()
		}
	}
}
