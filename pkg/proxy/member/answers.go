package member

import (
	"context"
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
)

// Answers makes sure that the member lives, by an answer of the last second or
// a quick probe. The error is an *UnreachableError of a request that was not
// sent: whoever is free to can turn to another member.
func (t *Transport) Answers(ctx context.Context) error {
	if time.Since(time.Unix(0, t.answered.Load())) < freshAnswer {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, quickProbe)
	defer cancel()
	err := t.alive(ctx)
	if err == nil {
		t.heard()
		return nil
	}
	t.silentAt.Store(time.Now().UnixNano())
	return &UnreachableError{Cluster: t.name, Err: err}
}

// heard notes that the member has answered.
func (t *Transport) heard() {
	t.answered.Store(time.Now().UnixNano())
	t.silentAt.Store(0)
}

// Silent says that the member did not answer a probe a moment ago.
func (p *Pool) Silent(name cache.ClusterName) bool {
	p.mu.Lock()
	e := p.entries[name]
	p.mu.Unlock()
	return e != nil && time.Since(time.Unix(0, e.t.silentAt.Load())) < silentFor
}
