package sandbox

import (
	"context"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// meter is the context of the machine, which asks for Done before each
// instruction: that is where steps are counted. Once it is over, every further
// instruction fails, whatever the script catches.
type meter struct {
	//nolint:containedctx // it is one
	context.Context
	closed chan struct{}
	steps  int64
	bytes  int64
	over   error
}

// lookAt is how many steps go by between two looks at the clock.
const lookAt = 256

func newMeter(ctx context.Context, l Limits) *meter {
	m := &meter{Context: ctx, closed: make(chan struct{}), steps: l.Steps, bytes: l.Bytes}
	close(m.closed)
	return m
}

// Done implements context.Context.
func (m *meter) Done() <-chan struct{} {
	m.steps--
	if m.over == nil {
		switch {
		case m.steps < 0:
			m.over = ErrSteps
		case m.steps%lookAt == 0 && m.Context.Err() != nil:
			m.over = ErrTime
		}
	}
	if m.over != nil {
		return m.closed
	}
	return nil
}

// Err implements context.Context.
func (m *meter) Err() error {
	if m.over != nil {
		return m.over
	}
	return m.Context.Err()
}

// Deadline implements context.Context.
func (m *meter) Deadline() (time.Time, bool) { return m.Context.Deadline() }

// take accounts for memory; it says whether there is enough.
func (m *meter) take(n int64) bool {
	if n > m.bytes {
		m.bytes = 0
		if m.over == nil {
			m.over = ErrMemory
		}
		return false
	}
	m.bytes -= n
	return true
}

// charge accounts for memory that a function is about to take.
func (m *meter) charge(l *lua.LState, n int) {
	if n < 0 || !m.take(int64(n)) {
		if m.over == nil {
			m.over = ErrMemory
		}
		l.RaiseError("%s", m.over.Error())
	}
}

// step accounts for work that a function does.
func (m *meter) step() bool {
	return m.Done() == nil
}
