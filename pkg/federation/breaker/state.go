package breaker

import (
	"maps"
	"slices"
	"time"
)

// State is what survives a restart.
type State struct {
	Trips []*Trip `json:"trips,omitempty"`
	// Counted is the window in steps of a minute.
	Counted []Counted `json:"counted,omitempty"`
	// Passed are containers that may go.
	Passed map[string]time.Time `json:"passed,omitempty"`
}

// Counted is what was removed in a minute.
type Counted struct {
	At      time.Time `json:"at"`
	Class   Class     `json:"class"`
	Cluster string    `json:"cluster"`
	Amount
}

// State to be stored.
func (b *Breaker) State() State {
	sums := map[Counted]Amount{}
	for _, c := range b.charges {
		k := Counted{At: c.at.Truncate(time.Minute).UTC(), Class: c.class, Cluster: c.cluster}
		sums[k] = sums[k].plus(c.Amount)
	}
	out := State{Trips: b.Trips(), Passed: maps.Clone(b.passed)}
	for k, sum := range sums {
		k.Amount = sum
		out.Counted = append(out.Counted, k)
	}
	slices.SortFunc(out.Counted, func(x, y Counted) int {
		if c := x.At.Compare(y.At); c != 0 {
			return c
		}
		return compareNames(x, y)
	})
	return out
}

func compareNames(x, y Counted) int {
	a, b := string(x.Class)+"@"+x.Cluster, string(y.Class)+"@"+y.Cluster
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// startTime is how long a start may take until everything has been tried.
const startTime = 2 * time.Minute

// Tried says that everything which may have waited before the start has been
// tried: a restored trip on which nothing waits is over as soon as any other.
func (b *Breaker) Tried(now time.Time) {
	for _, t := range b.trips {
		if t.idle.After(now) {
			t.idle = now
		}
	}
}

// Restore makes a breaker of what was stored. What waits is found out again.
func Restore(l Limits, s State, now time.Time) *Breaker {
	b := New(l)
	for _, t := range s.Trips {
		if t != nil && t.ID != "" {
			restored := *t
			restored.idle = now.Add(startTime) // those that wait have to come first
			b.trips[t.ID] = &restored
		}
	}
	for _, c := range s.Counted {
		at := c.At.Add(time.Minute) // the minute's end: rather too long than too short
		if at.After(now) {
			at = now
		}
		b.charges = append(b.charges, charge{at: at, class: c.Class, cluster: c.Cluster, Amount: c.Amount})
	}
	maps.Copy(b.passed, s.Passed)
	return b
}
