package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	// freshAnswer is how long an answer is a sign of life.
	freshAnswer = time.Second
	// silentFor is how long a member that did not answer a probe is passed
	// over without another one.
	silentFor = 10 * time.Second
	// quickProbe is how long a member has to show that it lives where another
	// could take its place.
	quickProbe = 1500 * time.Millisecond
	// silentProbe is how long one has that was silent a moment ago.
	silentProbe = time.Second
	// briefly is how long a member may fail before clients are told to stop
	// trying, and failuresApart after what pause a failure is another one.
	briefly       = 3 * time.Second
	failuresApart = 30 * time.Second
)

// Answers makes sure that the member lives, by an answer of the last second or
// a quick probe. The error is an *UnreachableError of a request that was not
// sent: whoever is free to can turn to another member.
func (t *Transport) Answers(ctx context.Context) error {
	return t.answers(ctx, quickProbe)
}

func (t *Transport) answers(ctx context.Context, limit time.Duration) error {
	if time.Since(time.Unix(0, t.answered.Load())) < freshAnswer {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, silence(limit))
	defer cancel()
	err := t.alive(ctx)
	if err == nil {
		t.heard()
		return nil
	}
	t.silentAt.Store(time.Now().UnixNano())
	return t.gone(false, err)
}

// unlessSilent keeps a request from a member that was silent a moment ago and
// still is.
func (t *Transport) unlessSilent(ctx context.Context) error {
	if !t.silent() {
		return nil
	}
	return t.answers(ctx, silentProbe)
}

func (t *Transport) silent() bool {
	return time.Since(time.Unix(0, t.silentAt.Load())) < silentFor
}

// heard notes that the member has answered.
func (t *Transport) heard() {
	t.answered.Store(time.Now().UnixNano())
	t.silentAt.Store(0)
	t.failures.end()
}

// gone is the error of a request that the member did not answer.
func (t *Transport) gone(sent bool, err error) *UnreachableError {
	lasting := t.failures.lasting(time.Now()) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrFrozen)
	return &UnreachableError{Cluster: t.name, Sent: sent, Lasting: lasting, Err: err}
}

// silence is how long a member has not answered a probe.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("no answer to a probe within %s", time.Duration(s))
}

// Is makes it a matter of time.
func (silence) Is(target error) bool { return target == context.DeadlineExceeded }

// failures are those since the last answer.
type failures struct {
	mu          sync.Mutex
	first, last time.Time
}

// lasting notes a failure and says whether it is an old one.
func (f *failures) lasting(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.IsZero() || now.Sub(f.last) > failuresApart {
		f.first = now
	}
	f.last = now
	return now.Sub(f.first) > briefly
}

func (f *failures) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first, f.last = time.Time{}, time.Time{}
}

// Silent says that the member did not answer a probe a moment ago.
func (p *Pool) Silent(name cache.ClusterName) bool {
	p.mu.Lock()
	e := p.entries[name]
	p.mu.Unlock()
	return e != nil && e.t.silent()
}
