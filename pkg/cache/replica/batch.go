package replica

import (
	"context"
	"sync"
	"time"
)

// batch lets those who ask while a question is under way share the next one:
// the answer to a question that was sent before may be too old for them.
type batch struct {
	mu      sync.Mutex
	running *question
	next    *question
}

type question struct {
	done   chan struct{}
	answer uint64
	err    error
}

// questionWait bounds one question.
const questionWait = time.Second

func (b *batch) ask(ctx context.Context, ask func(context.Context) (uint64, error)) (uint64, error) {
	b.mu.Lock()
	q := b.next
	if q == nil {
		q = &question{done: make(chan struct{})}
		if b.running == nil {
			b.start(q, ask) //nolint:contextcheck // it outlives who asked first
		} else {
			b.next = q
		}
	}
	b.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// start sends a question; b.mu is held. It outlives who asked first.
func (b *batch) start(q *question, ask func(context.Context) (uint64, error)) {
	b.running = q
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), questionWait)
		defer cancel()
		q.answer, q.err = ask(ctx)
		close(q.done)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running = nil
		if next := b.next; next != nil {
			b.next = nil
			b.start(next, ask)
		}
	}()
}
