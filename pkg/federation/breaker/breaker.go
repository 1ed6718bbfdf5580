// Package breaker stops removals that are more than ordinary work.
//
//	Removal -> class (derived, asked) and container -> window, limits
//	        -> Go, Wait (until an operator answers), Release (after a rejection)
//
// A removal takes replicas or objects away from a cluster. Derived removals
// follow from a policy, a Cluster's labels, weights or overrides: nobody named
// the workload, so little is allowed. Asked ones were said of the very
// template: they have room, but a mass of them stops too. What goes with a
// deleted Namespace or CustomResourceDefinition is weighed as a whole, before
// anything of it goes. The clock is the caller's.
package breaker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Class of a removal.
type Class string

// Classes.
const (
	Derived Class = "derived"
	Asked   Class = "asked"
)

// Amount is what is taken away.
type Amount struct {
	Replicas int64 `json:"replicas"`
	Objects  int64 `json:"objects"`
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Replicas + b.Replicas, a.Objects + b.Objects} }

func (a Amount) within(limit Amount) bool {
	return a.Replicas <= limit.Replicas && a.Objects <= limit.Objects
}

// String is for people.
func (a Amount) String() string { return fmt.Sprintf("%d replicas, %d objects", a.Replicas, a.Objects) }

// Removal from one cluster.
type Removal struct {
	Cluster  string
	Template string
	Class    Class
	// Container is the Namespace or CustomResourceDefinition that is being
	// deleted around the template ("namespace/NAME", "crd/NAME"), or empty.
	Container string
	// Contents is all that the container takes along, over all clusters.
	Contents Amount
	Amount
	// Whole is what goes in the end, of which Amount is the next step; zero when
	// there is one step only.
	Whole Amount
	// Surplus says that the template has all that it wants without what is
	// removed, Nearer that its placement is nearer to the one that had stood,
	// before the changes of late, than the placement before it was.
	Surplus, Nearer bool
	// Age is how long both the template and its copy have been there; zero
	// where that is not known.
	Age time.Duration
	// Token tells one removal from the next one of the same copy: trying
	// again is not counted again.
	Token string
}

// Size of the fleet, or of what is in a cluster.
type Size = Amount

// Verdict on a removal.
type Verdict int

// Verdicts.
const (
	// Go ahead.
	Go Verdict = iota
	// Wait for an answer.
	Wait
	// Release the copy in place of deleting it: the deletion was rejected.
	Release
)

func (v Verdict) String() string { return [...]string{"Go", "Wait", "Release"}[v] }

// Limit of one measure: a share of the whole, and a floor.
type Limit struct {
	Floor   int64
	Percent int64
}

func (l Limit) of(whole int64) int64 { return max(l.Floor, whole*l.Percent/100) }

// Limits of what may be removed within the window without asking.
type Limits struct {
	Window time.Duration
	// Fleet and Cluster limit derived removals over all clusters and in one.
	FleetReplicas, FleetObjects     Limit
	ClusterReplicas, ClusterObjects Limit
	// Asked is how many times as much may be removed by asked removals.
	Asked int64
	// Small: a fleet with fewer replicas is not held to a share: half of Small
	// may go.
	Small int64
}

// DefaultLimits are ample for ordinary work: of 2,000 replicas 20 may go, of 20 all,
// and the deletion of an application does not come near.
func DefaultLimits() Limits {
	return Limits{
		Window:        10 * time.Minute,
		FleetReplicas: Limit{Floor: 20, Percent: 1}, FleetObjects: Limit{Floor: 200, Percent: 1},
		ClusterReplicas: Limit{Floor: 20, Percent: 10}, ClusterObjects: Limit{Floor: 200, Percent: 10},
		Asked: 5, Small: 200,
	}
}

// fleet is the limit of a class over all clusters.
func (l Limits) fleet(c Class, whole Size) Amount {
	return l.scale(c, l.small(whole, Amount{l.FleetReplicas.of(whole.Replicas), l.FleetObjects.of(whole.Objects)}))
}

// cluster is the limit of a class in one cluster of a fleet.
func (l Limits) cluster(c Class, fleet, whole Size) Amount {
	return l.scale(c, l.small(fleet, Amount{l.ClusterReplicas.of(whole.Replicas), l.ClusterObjects.of(whole.Objects)}))
}

func (l Limits) small(fleet Size, a Amount) Amount {
	if fleet.Replicas < l.Small {
		a.Replicas = max(a.Replicas, l.Small/2)
	}
	return a
}

func (l Limits) scale(c Class, a Amount) Amount {
	if c == Asked {
		return Amount{a.Replicas * l.Asked, a.Objects * l.Asked}
	}
	return a
}

// Answers of an operator.
const (
	Approved = "approved"
	Rejected = "rejected"
)

// Trip is a stop. Removals that it covers wait.
type Trip struct {
	// ID is "CLASS", "CLASS@CLUSTER" or the container.
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
	// Done was removed in the window, Limit could have been; for a container,
	// Done is all that it takes along.
	Done  Amount `json:"done"`
	Limit Amount `json:"limit"`

	Answer string    `json:"answer,omitempty"`
	By     string    `json:"by,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	// Left of what was approved.
	Left Amount `json:"left,omitzero"`

	idle time.Time // since when nothing waits
}

// patience is how long a trip lasts although nothing waits: what was approved
// goes step by step, as replicas elsewhere come up.
func (t *Trip) patience(window time.Duration) time.Duration {
	if t.Answer == Approved && t.Left.Replicas+t.Left.Objects > 0 {
		return window
	}
	return calm
}

// IsContainer says whether the trip is about a Namespace or a
// CustomResourceDefinition.
func (t *Trip) IsContainer() bool { return strings.Contains(t.ID, "/") }

// charge is one counted removal.
type charge struct {
	at       time.Time
	class    Class
	cluster  string
	template string
	Amount
}

type copyID struct{ cluster, template string }

// Waiting is a removal that waits.
type Waiting struct {
	Removal
	Trip string
	seen time.Time
}

// Total is what the removal takes in the end.
func (r Removal) Total() Amount {
	return Amount{max(r.Whole.Replicas, r.Replicas), max(r.Whole.Objects, r.Objects)}
}

// Breaker counts. It is not safe for concurrent use.
type Breaker struct {
	limits  Limits
	charges []charge
	tokens  map[copyID]token
	trips   map[string]*Trip
	waiting map[copyID]Waiting
	passed  map[string]time.Time // containers that may go, until when that is remembered
}

type token struct {
	text string
	at   time.Time
}

// New makes a closed breaker.
func New(l Limits) *Breaker {
	return &Breaker{
		limits: l, tokens: map[copyID]token{}, trips: map[string]*Trip{},
		waiting: map[copyID]Waiting{}, passed: map[string]time.Time{},
	}
}

const (
	// answerLife is how long an answer counts.
	answerLife = time.Hour
	// staleAfter is when a removal that nobody tries any more waits no longer.
	staleAfter = 3 * time.Minute
	// calm is how long nothing must wait before a trip is over.
	calm = 15 * time.Second
)

// Ask decides about a removal and counts it when it may go. fleet and cluster
// are the sizes at present; reason is for people.
func (b *Breaker) Ask(now time.Time, r Removal, fleet, cluster Size) (verdict Verdict, reason string) {
	b.prune(now)
	id := copyID{r.Cluster, r.Template}
	if t := b.tokens[id]; t.text == r.Token && r.Token != "" && now.Sub(t.at) < b.limits.Window {
		delete(b.waiting, id)
		return Go, "was counted before"
	}
	if undoes(r) {
		delete(b.waiting, id)
		return Go, "takes back a change"
	}
	trip := b.stops(now, &r, fleet, cluster)
	if trip == nil {
		delete(b.waiting, id)
		b.tokens[id] = token{r.Token, now}
		return Go, "within the limits"
	}
	if trip.Answer == Rejected && r.Class == Asked && r.Objects > 0 {
		delete(b.waiting, id)
		return Release, "the removal was rejected by " + trip.By
	}
	b.waiting[id] = Waiting{Removal: r, Trip: trip.ID, seen: now}
	trip.idle = time.Time{}
	return Wait, fmt.Sprintf("the removal waits for approval (%s), see: multicluster-apiserver breaker status", trip.ID)
}

// undoes: a change of the placement is taken back, and what had been created
// for it goes again. The same mistake once more, or another one, is no way back.
func undoes(r Removal) bool { return r.Class == Derived && r.Surplus && r.Nearer }

// stops finds the trip that a removal runs into, and counts the removal when
// there is none.
func (b *Breaker) stops(now time.Time, r *Removal, fleet, cluster Size) *Trip {
	if r.Container != "" {
		trip, passes := b.container(now, r, fleet)
		if trip != nil || passes {
			return trip
		}
	}
	if b.shortLived(r) {
		return nil
	}
	all, own := b.used(r.Class, ""), b.used(r.Class, r.Cluster)
	fleet, cluster = fleet.plus(all), cluster.plus(own)
	if trip, approved := b.class(now, r, string(r.Class), all, b.limits.fleet(r.Class, fleet)); trip != nil || approved {
		return trip
	}
	if trip, approved := b.class(now, r, string(r.Class)+"@"+r.Cluster, own, b.limits.cluster(r.Class, fleet, cluster)); trip != nil || approved {
		return trip
	}
	b.charges = append(b.charges, charge{at: now, class: r.Class, cluster: r.Cluster, template: r.Template, Amount: r.Amount})
	return nil
}

// shortLived: what came within the window and is taken away by name is no part
// of what has been running; test and build systems do so by the thousand.
func (b *Breaker) shortLived(r *Removal) bool {
	return r.Class == Asked && r.Age > 0 && r.Age < b.limits.Window
}

// container weighs what a deleted container takes along, once.
func (b *Breaker) container(now time.Time, r *Removal, fleet Size) (trip *Trip, passes bool) {
	if trip := b.trips[r.Container]; trip != nil {
		if trip.Answer == Approved {
			return nil, true
		}
		trip.Done = Amount{max(trip.Done.Replicas, r.Contents.Replicas), max(trip.Done.Objects, r.Contents.Objects)}
		return trip, false
	}
	limit := b.limits.fleet(Derived, fleet.plus(b.used(Asked, "")))
	if _, known := b.passed[r.Container]; known || r.Contents.within(limit) {
		b.passed[r.Container] = now
		return nil, false // counted like any other that was asked for
	}
	trip = &Trip{ID: r.Container, Since: now, Done: r.Contents, Limit: limit}
	b.trips[r.Container] = trip
	return trip, false
}

// class looks whether a removal goes past a limit of its class.
func (b *Breaker) class(now time.Time, r *Removal, id string, used, limit Amount) (trip *Trip, approved bool) {
	if trip := b.trips[id]; trip != nil {
		if trip.Answer == Approved && r.Amount.within(trip.Left) {
			trip.Left = Amount{trip.Left.Replicas - r.Replicas, trip.Left.Objects - r.Objects}
			return nil, true
		}
		if trip.Answer == Approved {
			trip.Answer, trip.Left = "", Amount{} // more than was approved
		}
		return trip, false
	}
	if used.plus(r.Amount).within(limit) || r.Class == Asked && b.alone(r) {
		return nil, false
	}
	trip = &Trip{ID: id, Since: now, Done: used, Limit: limit}
	b.trips[id] = trip
	return trip, false
}

// alone: nobody else's template has been asked to shrink in the window. What
// one says of one template is no accident of a mass.
func (b *Breaker) alone(r *Removal) bool {
	return !slices.ContainsFunc(b.charges, func(c charge) bool { return c.class == Asked && c.template != r.Template })
}

// used sums the window, of one cluster or of all.
func (b *Breaker) used(class Class, cluster string) Amount {
	var out Amount
	for _, c := range b.charges {
		if c.class == class && (cluster == "" || c.cluster == cluster) {
			out = out.plus(c.Amount)
		}
	}
	return out
}

// Settled says that nothing has to be removed from a copy any more.
func (b *Breaker) Settled(cluster, template string) { delete(b.waiting, copyID{cluster, template}) }

// prune lets the window slide.
func (b *Breaker) prune(now time.Time) {
	old := now.Add(-b.limits.Window)
	b.charges = slices.DeleteFunc(b.charges, func(c charge) bool { return !c.at.After(old) })
	maps.DeleteFunc(b.tokens, func(_ copyID, t token) bool { return !t.at.After(old) })
	maps.DeleteFunc(b.passed, func(_ string, at time.Time) bool { return now.Sub(at) > answerLife })
}

// Tick ends what is over. It reports whether a trip has ended.
func (b *Breaker) Tick(now time.Time) (ended []*Trip) {
	b.prune(now)
	maps.DeleteFunc(b.waiting, func(_ copyID, w Waiting) bool { return now.Sub(w.seen) > staleAfter })
	for id, t := range b.trips {
		if t.Answer != "" && now.After(t.Until) {
			t.Answer, t.By, t.Left = "", "", Amount{}
		}
		if b.waits(id) {
			t.idle = time.Time{}
			continue
		}
		if t.idle.IsZero() {
			t.idle = now
		}
		if now.Sub(t.idle) >= t.patience(b.limits.Window) {
			delete(b.trips, id)
			ended = append(ended, t)
			if t.Answer == Approved && t.IsContainer() {
				b.passed[id] = now
			}
		}
	}
	return ended
}

func (b *Breaker) waits(id string) bool {
	for _, w := range b.waiting {
		if w.Trip == id {
			return true
		}
	}
	return false
}

// Answer takes an operator's answer to a trip, and names the copies that
// waited for it.
func (b *Breaker) Answer(now time.Time, id, answer, by string) (of []Waiting, known bool) {
	t := b.trips[id]
	if t == nil {
		return nil, false
	}
	t.Answer, t.By, t.Until, t.Left = answer, by, now.Add(answerLife), Amount{}
	for _, w := range b.waiting {
		if w.Trip == id {
			of = append(of, w)
			t.Left = t.Left.plus(w.Total())
		}
	}
	// What was let through before does not stop the rest again.
	if answer == Approved && !t.IsContainer() {
		b.charges = slices.DeleteFunc(b.charges, func(c charge) bool {
			return id == string(c.class) || id == string(c.class)+"@"+c.cluster
		})
	}
	return of, true
}

// Trips lists what is stopped.
func (b *Breaker) Trips() []*Trip {
	return slices.SortedFunc(maps.Values(b.trips), func(x, y *Trip) int { return strings.Compare(x.ID, y.ID) })
}

// Waiting lists the removals that wait for a trip, in the order of clusters and
// templates.
func (b *Breaker) Waiting(id string) []Waiting {
	var out []Waiting
	for _, w := range b.waiting {
		if w.Trip == id {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(x, y Waiting) int {
		if c := strings.Compare(x.Template, y.Template); c != 0 {
			return c
		}
		return strings.Compare(x.Cluster, y.Cluster)
	})
	return out
}
