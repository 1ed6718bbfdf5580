package membercache

import (
	"context"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache/scavenge"
)

const packEvery = time.Second

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
		if now := c.cfg.Now.Now(); now.Sub(given) >= scavenge.Every {
			given = now
			scavenge.Now()
		}
	}
}
