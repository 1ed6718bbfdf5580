package membercache

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// limiter allows one line of log in a while.
type limiter struct {
	clock clock.PassiveClock
	every time.Duration

	mu   sync.Mutex
	last time.Time
}

func newLimiter(c clock.PassiveClock, every time.Duration) *limiter {
	return &limiter{clock: c, every: every}
}

func (l *limiter) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if !l.last.IsZero() && now.Sub(l.last) < l.every {
		return false
	}
	l.last = now
	return true
}
