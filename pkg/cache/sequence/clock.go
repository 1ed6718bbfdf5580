// Package sequence hands out resourceVersions: one strictly growing decimal
// space for all collections of a sequencer.
//
//	now, last, reservation -> Next -> (milliseconds since 2025) << 20 | counter
//
// A number is never given twice, not even after the clock was set back or the
// process died: numbers are reserved ahead of use in a Reservation that
// outlives the process, and a start begins above what was reserved.
package sequence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Reservation keeps the highest number that may have been given out.
type Reservation interface {
	// Load returns the stored number, 0 where nothing was ever stored.
	Load(ctx context.Context) (uint64, error)
	// Store makes the number durable before it returns.
	Store(ctx context.Context, upTo uint64) error
}

// counterBits is the room for numbers within one millisecond.
const counterBits = 20

// ahead is how far numbers are reserved beyond the present.
const ahead = uint64(10*time.Second/time.Millisecond) << counterBits

// holdsEvery is how often Next asks again whether it may go on.
const holdsEvery = 10 * time.Millisecond

// Epoch is the beginning of the number space.
var Epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrNotReserved is wrapped by Open when the reservation cannot be read or
// moved: without it a number might be given twice.
var ErrNotReserved = errors.New("resourceVersions cannot be reserved")

// Clock gives out numbers. It is safe for concurrent use.
type Clock struct {
	clock clock.PassiveClock
	store Reservation

	mu       sync.Mutex
	last     uint64
	reserved uint64
	storing  bool
	failed   func(error)
	holds    func() bool // nil where nobody else gives out numbers
}

// New makes a clock that gives out nothing before Start. holds is asked before
// each number: while it answers false, Next waits. It may be nil.
func New(c clock.PassiveClock, holds func() bool) *Clock {
	return &Clock{clock: c, holds: holds, failed: func(error) {}}
}

// Open makes a clock and starts it. onError is told of reservations that fail
// later on; it may be nil.
func Open(ctx context.Context, c clock.PassiveClock, r Reservation, onError func(error)) (*Clock, error) {
	s := New(c, nil)
	if err := s.Start(ctx, r, 0, onError); err != nil {
		return nil, err
	}
	return s, nil
}

// Start reads the reservation and reserves the first numbers, all above least.
func (s *Clock) Start(ctx context.Context, r Reservation, least uint64, onError func(error)) error {
	stored, err := r.Load(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReserved, err)
	}
	last := max(stored, least, s.present())
	if err := r.Store(ctx, last+ahead); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReserved, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store, s.last, s.reserved = r, last, last+ahead
	if onError != nil {
		s.failed = onError
	}
	return nil
}

// present is the smallest number of this millisecond, at least 1.
func (s *Clock) present() uint64 {
	ms := s.clock.Now().Sub(Epoch).Milliseconds()
	return uint64(max(ms, 0))<<counterBits | 1
}

// Next returns a number above every one returned before, by this process or an
// earlier one. Half-way through the reserved numbers more are reserved in the
// background; only where that has not ended at the end of them Next waits.
func (s *Clock) Next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		panic("sequence: a clock that was not started was asked for a number")
	}
	for s.holds != nil && !s.holds() {
		time.Sleep(holdsEvery)
	}
	next := max(s.last+1, s.present())
	if next > s.reserved {
		s.reserveLocked(next)
	} else if s.reserved-next < ahead/2 && !s.storing {
		s.storing = true
		go s.extend(next + ahead)
	}
	s.last = next
	return next
}

// Last is the highest number given out.
func (s *Clock) Last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Clock) extend(upTo uint64) {
	err := s.store.Store(context.Background(), upTo)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storing = false
	if err != nil {
		s.failed(err)
		return
	}
	s.reserved = max(s.reserved, upTo)
}

// reserveLocked stores before it returns. Where the store fails it tries again:
// to give out a number that is not reserved could give it twice.
func (s *Clock) reserveLocked(next uint64) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		upTo := next + ahead
		err := s.store.Store(context.Background(), upTo)
		if err == nil {
			s.reserved = max(s.reserved, upTo)
			return
		}
		s.failed(err)
		time.Sleep(wait)
	}
}
