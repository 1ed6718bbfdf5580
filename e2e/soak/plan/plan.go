// Package plan deals out faults. The same seed gives the same plan, so that a run
// can be repeated.
package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is a way to break one thing for a while.
type Fault struct {
	Kind    string
	Targets []string // one of them is chosen
	// Least and Most are how long it lasts.
	Least, Most time.Duration
}

// Step is a fault with its place in a run.
type Step struct {
	Kind, Target string
	At, For      time.Duration
}

func (s Step) String() string {
	return fmt.Sprintf("%s %s at %s for %s", s.Kind, s.Target, s.At.Round(100*time.Millisecond), s.For.Round(100*time.Millisecond))
}

// End of the step.
func (s Step) End() time.Duration { return s.At + s.For }

// Deal goes through the deck in an order of its own, again and again until the
// duration is over, and at least once. Steps overlap, but never two of one
// target. Faults are between gap/2 and gap*3/2 apart.
func Deal(seed uint64, deck []Fault, gap, duration time.Duration) []Step {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // to be repeated
	busy := map[string]time.Duration{}
	var steps []Step
	now := gap / 2
	for round := 0; round == 0 || now < duration; round++ {
		for _, i := range r.Perm(len(deck)) {
			f := deck[i]
			if round > 0 && now >= duration {
				break
			}
			s := Step{Kind: f.Kind, Target: f.Targets[r.IntN(len(f.Targets))], At: now, For: f.Least}
			if f.Most > f.Least {
				s.For += time.Duration(r.Int64N(int64(f.Most - f.Least)))
			}
			s.At = max(s.At, busy[s.Target]+time.Second)
			busy[s.Target] = s.End()
			steps = append(steps, s)
			now += gap/2 + time.Duration(r.Int64N(int64(gap)))
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return steps
}
