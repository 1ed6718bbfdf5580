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
}

// Open reads the reservation and reserves the first numbers. onError is told
// of reservations that fail later on; it may be nil.
func Open(ctx context.Context, c clock.PassiveClock, r Reservation, onError func(error)) (*Clock, error) {
	if onError == nil {
		onError = func(error) {}
	}
	stored, err := r.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReserved, err)
	}
	s := &Clock{clock: c, store: r, failed: onError}
	s.last = max(stored, s.present())
	s.reserved = s.last + ahead
	if err := r.Store(ctx, s.reserved); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReserved, err)
	}
	return s, nil
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
