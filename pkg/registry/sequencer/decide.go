// Package sequencer decides which of several gateways numbers the events: the
// one that holds a Lease of the control plane.
//
//	Lease as seen, own clock -> Decide -> wait, take, renew, deposed -> Elector
//	Elector.Holds, Leading, Leader -> who may number events, and in which epoch
//
// A holder goes by its own monotonic clock: it stops before anybody else may
// take the Lease, whether or not it is told. One that cannot reach the control
// plane waits; it goes on when it can renew and nobody has taken over.
package sequencer

import (
	"strings"
	"time"
)

const (
	// leaseFor is how long others wait for a holder that does not renew.
	leaseFor = 9 * time.Second
	// margin is how long before that a holder stops: what it sends needs time.
	margin     = 2 * time.Second
	renewEvery = 2 * time.Second
	// patience is how much longer a replica waits that has no state of the
	// holder's, so that one that has it goes first.
	patience = 5 * time.Second
)

// Seen is the Lease as it was read.
type Seen struct {
	Holder string // an identity; empty where it was given up
	Epoch  uint64
	// Since is when, by the own clock, the Lease was first seen like this.
	Since time.Time
	For   time.Duration
}

// Self is the replica that decides.
type Self struct {
	Identity string
	// Renewed is when the last renewal that succeeded was sent; zero where this
	// replica never held the Lease.
	Renewed time.Time
	// Follows says that the holder's log is here; HasState, that at least an
	// earlier state is.
	Follows, HasState bool
}

// Action is what to do about the Lease.
type Action int

// Actions.
const (
	Wait Action = iota
	Take
	Renew
	Deposed
)

// Decide says what a replica does about the Lease.
func Decide(now time.Time, l Seen, me Self) Action {
	if l.Holder == me.Identity {
		if now.Sub(me.Renewed) >= renewEvery {
			return Renew
		}
		return Wait
	}
	if !me.Renewed.IsZero() {
		return Deposed
	}
	if address(l.Holder) == address(me.Identity) && me.HasState {
		return Take // an earlier process at this very address: it has ended
	}
	over := l.Since
	if l.Holder != "" {
		over = over.Add(l.For)
	}
	if !me.Follows && l.Epoch > 0 {
		over = over.Add(patience)
	}
	if now.Before(over) {
		return Wait
	}
	return Take
}

// Valid says whether a holder may still go by its last renewal.
func Valid(now, renewed time.Time) bool {
	return !renewed.IsZero() && now.Sub(renewed) < leaseFor-margin
}

// An identity is the address at which a replica is reached, and what tells its
// process from earlier ones.
const identitySeparator = "#"

func address(identity string) string {
	a, _, _ := strings.Cut(identity, identitySeparator)
	return a
}
