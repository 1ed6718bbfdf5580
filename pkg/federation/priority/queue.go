// Package priority queues keys on two levels:
//
//	Add        -> new     \
//	AddBacklog -> backlog -> Get: new ones first, but for one in eight while a
//	                         backlog waits, so that it never starves
//	AddEcho    -> as the key was taken last
//
// A key waits once, on the higher of the levels that it was added with. What is
// tried again while it is worked on keeps its level, unless it fails again and
// again.
package priority

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// steadfast is how often in a row a new key may fail before it is backlog.
const steadfast = 5

// Queue is a rate limited work queue with two levels.
type Queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	lanes *lanes[K]
}

// NewQueue makes a queue with a name for its metrics.
func NewQueue[K comparable](name string, limiter workqueue.TypedRateLimiter[K]) *Queue[K] {
	l := newLanes[K]()
	return &Queue[K]{lanes: l, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[K]{
		Name: name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Name: name, Queue: l}),
		}),
	})}
}

// Add queues what is new.
func (q *Queue[K]) Add(key K) { q.AddAs(key, New) }

// AddBacklog queues what can wait for what is new.
func (q *Queue[K]) AddBacklog(key K) { q.AddAs(key, Backlog) }

// AddEcho queues what comes of the work on a key, as the event of a write does:
// on the level on which the key was taken last.
func (q *Queue[K]) AddEcho(key K) { q.AddAs(key, q.lanes.last(key)) }

// AddAs queues on a level; a key that waits on a higher one stays there.
func (q *Queue[K]) AddAs(key K, level Level) {
	if level == New {
		q.lanes.mark(key)
	}
	q.TypedRateLimitingInterface.Add(key)
}

// AddAfter queues later. A key that is being worked on keeps its level.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	q.keep(key)
	q.TypedRateLimitingInterface.AddAfter(key, d)
}

// AddRateLimited queues when the limiter allows, as AddAfter does.
func (q *Queue[K]) AddRateLimited(key K) {
	if q.NumRequeues(key) < steadfast {
		q.keep(key)
	}
	q.TypedRateLimitingInterface.AddRateLimited(key)
}

func (q *Queue[K]) keep(key K) {
	if q.Level(key) == New {
		q.lanes.mark(key)
	}
}

// Level is the one on which a key that is being worked on was taken.
func (q *Queue[K]) Level(key K) Level { return q.lanes.level(key) }

// Done says that a key is not worked on any more.
func (q *Queue[K]) Done(key K) {
	q.lanes.done(key)
	q.TypedRateLimitingInterface.Done(key)
}
