// Package rollout is the arbiter over the clusters of one workload: it grants
// every change of a pod template and of replicas, so that all clusters together
// stay within what the workload allows on one cluster.
//
//	maxSurge, maxUnavailable of the whole -> Resolve -> Split -> a share each
//	workload, what every cluster runs     -> Plan  -> what each may do now
//
// Plan is asked again whenever something has changed. What it granted before
// is part of what it sees, so the same state gives the same answer.
package rollout

import (
	"cmp"
	"slices"
)

// Workload is what holds over all clusters.
type Workload struct {
	// Desired replicas over all clusters that count; see Cluster.Lost.
	Desired int32
	// Missing are the replicas decided for lost clusters: nobody knows whether
	// they are there, so nothing is given up for them.
	Missing int32
	Budget  Budget
	// Unlimited lifts the limit on additional Pods: the workload has none.
	Unlimited bool
	// AtOnce lets all clusters take a template together.
	AtOnce bool
}

// Cluster is one cluster's part.
type Cluster struct {
	Name string
	// Exists: there is a copy. One that is not there yet can be made at once.
	Exists bool
	// Target is the decided number, zero for a cluster that is to be left;
	// Present is what the copy asks for, what was granted and written included.
	Target, Present int32
	// Least is the least that the copy has asked for since Available was
	// reported; Present when the report is about the copy as it is.
	Least int32
	// Autoscaled: replicas are not ours to set.
	Autoscaled bool
	// Outdated: writing what is decided starts a rollout.
	Outdated bool
	// Rolling: the cluster's controllers have not reported that no Pods of an
	// earlier template are left.
	Rolling   bool
	Available int32
	// InForce is the most generous strategy of the copy since Available was
	// reported, Next what it would be given.
	InForce, Next Budget
	// Closed clusters cannot be written to now and are granted nothing; what
	// they run counts.
	Closed bool
	// Troubled: the last write was refused. It comes last.
	Troubled bool
	// Lost clusters have been out of reach for too long to wait for, and count
	// on neither side.
	Lost bool
}

// Grant is what a cluster may do now.
type Grant struct {
	// Template may be written.
	Template bool
	Replicas int32
}

// Plan grants. Templates come first, then more replicas, then fewer.
func Plan(w Workload, clusters []Cluster) map[string]Grant {
	l := newLedger(w, clusters)
	grants := make(map[string]Grant, len(clusters))
	for _, c := range clusters {
		grants[c.Name] = Grant{Template: !c.Outdated || !c.Exists || w.AtOnce, Replicas: c.Present}
	}
	for _, e := range l.inOrder(func(c *Cluster) bool { return c.Exists && c.Outdated && !w.AtOnce }) {
		if l.mayRoll(e) {
			l.roll(e)
			grants[e.Name] = Grant{Template: true, Replicas: e.Present}
		}
	}
	for _, e := range l.inOrder(func(c *Cluster) bool { return c.Target > c.Present && !c.Autoscaled }) {
		l.grow(e)
		grants[e.Name] = Grant{Template: grants[e.Name].Template, Replicas: e.Present}
	}
	for _, e := range l.inOrder(func(c *Cluster) bool { return c.Target < c.Present && !c.Autoscaled }) {
		l.shrink(e)
		grants[e.Name] = Grant{Template: grants[e.Name].Template, Replicas: e.Present}
	}
	return grants
}

// entry is a cluster in the ledger; surge and down are what it may use now.
type entry struct {
	Cluster
	surge, down int32
}

// safe is how many Pods are available however far the cluster's controllers go.
func (e *entry) safe() int32 { return e.safeWith(e.Present, e.down) }

func (e *entry) safeWith(present, down int32) int32 {
	return max(0, min(e.Available, min(present, e.Least)-down))
}

// ledger adds up what all clusters together use.
type ledger struct {
	w       Workload
	entries []*entry
	present int32 // replicas asked for
	surge   int32 // additional Pods that rollouts may use
	spare   int32 // Pods that may become unavailable beyond what may already
}

func newLedger(w Workload, clusters []Cluster) *ledger {
	l := &ledger{w: w, spare: w.Budget.Unavailable - w.Desired}
	for _, c := range clusters {
		if c.Lost {
			continue
		}
		e := &entry{Cluster: c}
		if c.Rolling {
			e.surge, e.down = c.InForce.Surge, c.InForce.Unavailable
		}
		l.entries = append(l.entries, e)
		l.present += c.Present
		l.surge += e.surge
		l.spare += e.safe()
	}
	return l
}

// inOrder: where nothing can be lost first, refused ones last, else by name.
func (l *ledger) inOrder(match func(*Cluster) bool) []*entry {
	var out []*entry
	for _, e := range l.entries {
		if !e.Closed && match(&e.Cluster) {
			out = append(out, e)
		}
	}
	rank := func(e *entry) int {
		switch {
		case e.Troubled:
			return 2
		case e.Available < e.Present:
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name)) })
	return out
}

// mayRoll: what the rollout may take down is covered by the budget, or is down
// already; so a repair is never kept out by what it repairs.
func (l *ledger) mayRoll(e *entry) bool {
	if e.Present == 0 {
		return true
	}
	kept := e.safeWith(e.Present, max(e.down, e.Next.Unavailable))
	if e.Available > kept && e.safe()-kept > l.spare {
		return false
	}
	if l.w.Unlimited || e.Available < e.Present || e.Next.Surge <= e.surge {
		return true
	}
	return l.excess()+l.surge-e.surge+e.Next.Surge <= l.w.Budget.Surge
}

// excess is what moves use of the additional Pods.
func (l *ledger) excess() int32 { return max(0, l.present-l.w.Desired) }

func (l *ledger) roll(e *entry) {
	before := e.safe()
	l.surge += max(e.Next.Surge-e.surge, 0)
	e.surge, e.down = max(e.surge, e.Next.Surge), max(e.down, e.Next.Unavailable)
	l.spare += e.safe() - before
}

// grow: up to the desired number at once, beyond it, while others still hold
// what they give up, within the additional Pods.
func (l *ledger) grow(e *entry) {
	room := max(l.w.Desired-l.present, l.w.Desired+l.w.Budget.Surge-l.surge-l.present, 0)
	if l.w.Unlimited {
		room = e.Target - e.Present
	}
	n := min(e.Target-e.Present, room)
	l.set(e, e.Present+n)
}

// shrink: as far as enough stays available; Pods that are not go first.
func (l *ledger) shrink(e *entry) {
	n := min(e.Present, e.Least) - e.down - e.safe() + max(l.spare-l.w.Missing, 0)
	n = min(max(n, 0)+max(e.Present-e.Least, 0), e.Present-e.Target)
	if e.Available == 0 {
		n = e.Present - e.Target // nothing to lose
	}
	l.set(e, e.Present-n)
}

func (l *ledger) set(e *entry, present int32) {
	before := e.safe()
	l.present += present - e.Present
	e.Present = present
	l.spare += e.safe() - before
}
