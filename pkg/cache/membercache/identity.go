package membercache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
)

// ErrIdentity is wrapped when another cluster answers in a source's place.
var ErrIdentity = errors.New("another cluster answers")

// identityFor is how long an answer counts: long enough for the feeds of one
// source to share it when they reconnect together.
const identityFor = 10 * time.Second

// identities remembers which cluster answered to a config last.
type identities struct {
	mu    sync.Mutex
	known map[cache.ClusterName]*identity
}

type identity struct {
	asking singleflight.Group

	mu     sync.Mutex
	config *rest.Config
	uid    types.UID
	at     time.Time
}

// check makes a feed's Check for a source.
func (x *identities) check(name cache.ClusterName, uid types.UID, now clock.PassiveClock) func(context.Context, *rest.Config) error {
	if uid == "" {
		return func(context.Context, *rest.Config) error { return nil }
	}
	return func(ctx context.Context, config *rest.Config) error {
		got, err := x.of(name).ask(ctx, config, now)
		if err != nil {
			return err
		}
		if got != uid {
			return fmt.Errorf("%w: its kube-system namespace has UID %s, not %s", ErrIdentity, got, uid)
		}
		return nil
	}
}

func (x *identities) of(name cache.ClusterName) *identity {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil {
		x.known = map[cache.ClusterName]*identity{}
	}
	id, ok := x.known[name]
	if !ok {
		id = &identity{}
		x.known[name] = id
	}
	return id
}

// ask reads the identity, or gives the last answer where it is fresh. Those who
// ask together get one answer together, an error too.
func (i *identity) ask(ctx context.Context, config *rest.Config, now clock.PassiveClock) (types.UID, error) {
	i.mu.Lock()
	uid, fresh := i.uid, i.config == config && now.Since(i.at) < identityFor
	i.mu.Unlock()
	if fresh {
		return uid, nil
	}
	answer := i.asking.DoChan(fmt.Sprintf("%p", config), func() (any, error) {
		uid, err := feed.ClusterUID(context.WithoutCancel(ctx), config)
		if err != nil {
			return types.UID(""), err
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.config, i.uid, i.at = config, uid, now.Now()
		return uid, nil
	})
	select {
	case a := <-answer:
		return a.Val.(types.UID), a.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
