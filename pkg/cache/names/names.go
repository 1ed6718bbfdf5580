// Package names decides under which name an object of a member is served, so
// that namespace and name stay unique over all clusters.
//
//	holder appears, goes, moves in the join order, or a reservation ends
//	      -> Table -> []Move: which object is served under which name now
//
// The rules: among the clusters that hold a name the first in join order is
// served under it, the control plane before all; the others as NAME.CLUSTER,
// or in a hashed form where that is too long or is somebody's genuine name.
// When the object that is served under the bare name goes away, the name stays
// reserved to its cluster for a while, so that a repeated delete meets nobody
// else's object. A cluster that is creating an object holds the name as well.
//
// The table knows contested names only; the uncontested ones it looks up in
// what is served. It has no lock and no clock: its owner has.
package names

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Keep is how long a bare name stays reserved after its object is gone.
const Keep = 5 * time.Minute

const maxName = 253

// Holder is an object by the coordinates of its source.
type Holder struct {
	Cluster cache.ClusterName
	Source  cache.Key // namespace and name in the source
}

// Served finds what is served under a key.
type Served interface {
	At(key cache.Key) (Holder, bool)
}

// Move says that an object is served under To from now on. From is empty for
// one that was not served, To for one that is not served any longer.
type Move struct {
	Holder   Holder
	From, To cache.Key
}

// contest is a bare name that more than one cluster holds, or that is reserved.
type contest struct {
	holders []cache.ClusterName // sorted by join order
	// kept is the cluster to which the name is reserved until a moment.
	kept      cache.ClusterName
	keptUntil time.Time
	// creating counts the creations under way in a cluster.
	creating   int
	createdFor cache.ClusterName
	owner      cache.ClusterName
	owned      bool // owner is served under the bare name
}

func (c *contest) keeps(now time.Time) bool { return now.Before(c.keptUntil) }

// Table is the state of the contested and reserved names of one collection.
type Table struct {
	served   Served
	order    func(cache.ClusterName) int
	keep     time.Duration
	contests map[cache.Key]*contest
	aliases  map[cache.Key]Holder // alias in use -> who has it
}

// New makes a table. order gives the join order; the control plane needs none.
// keep is how long names stay reserved, usually Keep.
func New(served Served, order func(cache.ClusterName) int, keep time.Duration) *Table {
	return &Table{served: served, order: order, keep: keep, contests: map[cache.Key]*contest{}, aliases: map[cache.Key]Holder{}}
}

func (t *Table) compare(a, b cache.ClusterName) int {
	if a == cache.ControlPlane || b == cache.ControlPlane {
		return cmp.Compare(a, b) // the control plane has the empty name
	}
	return cmp.Or(cmp.Compare(t.order(a), t.order(b)), cmp.Compare(a, b))
}

// holders returns who holds a bare name, in join order.
func (t *Table) holders(key cache.Key) []cache.ClusterName {
	if c, ok := t.contests[key]; ok {
		return c.holders
	}
	if h, ok := t.served.At(key); ok && h.Source == key {
		return []cache.ClusterName{h.Cluster}
	}
	return nil
}

// contestOf returns the contest of a key, made from what is served.
func (t *Table) contestOf(key cache.Key) *contest {
	c, ok := t.contests[key]
	if !ok {
		c = &contest{holders: slices.Clone(t.holders(key))}
		if len(c.holders) > 0 {
			c.owner, c.owned = c.holders[0], true
		}
		t.contests[key] = c
	}
	return c
}

// Where returns the key under which an object is served, or would be served if
// it were there.
func (t *Table) Where(h Holder, now time.Time) cache.Key {
	c, ok := t.contests[h.Source]
	if !ok {
		if other, ok := t.served.At(h.Source); ok && other.Source == h.Source && t.compare(other.Cluster, h.Cluster) < 0 {
			return t.alias(h)
		}
		return h.Source
	}
	if slices.Contains(c.holders, h.Cluster) {
		if c.owned && c.owner == h.Cluster {
			return h.Source
		}
		return t.alias(h)
	}
	with := append(slices.Clone(c.holders), h.Cluster)
	slices.SortFunc(with, t.compare)
	if owner, ok := c.choose(with, now); ok && owner == h.Cluster {
		return h.Source
	}
	return t.alias(h)
}

// Add tells of an object that was not there before. The last move is its own.
func (t *Table) Add(h Holder, now time.Time) []Move {
	moves := t.evict(h)
	holders := t.holders(h.Source)
	if _, contested := t.contests[h.Source]; !contested && len(holders) == 0 {
		return append(moves, Move{Holder: h, To: h.Source})
	}
	c := t.contestOf(h.Source)
	c.holders = append(c.holders, h.Cluster)
	slices.SortFunc(c.holders, t.compare)
	moves = append(moves, t.settle(h.Source, c, now)...)
	if !c.owned || c.owner != h.Cluster {
		alias := t.alias(h)
		t.aliases[alias] = h
		moves = append(moves, Move{Holder: h, To: alias})
	}
	t.drop(h.Source, c, now)
	return moves
}

// Remove tells of an object that is gone. The first move is its own.
func (t *Table) Remove(h Holder, now time.Time) []Move {
	from := t.Where(h, now)
	moves := []Move{{Holder: h, From: from}}
	delete(t.aliases, from)
	c := t.contestOf(h.Source)
	c.holders = slices.DeleteFunc(c.holders, func(n cache.ClusterName) bool { return n == h.Cluster })
	if c.owned && c.owner == h.Cluster {
		c.owned = false
		c.kept, c.keptUntil = h.Cluster, now.Add(t.keep)
	}
	moves = append(moves, t.settle(h.Source, c, now)...)
	t.drop(h.Source, c, now)
	return moves
}

// Forget ends everything that is reserved to a cluster that has left.
func (t *Table) Forget(cluster cache.ClusterName, now time.Time) []Move {
	var moves []Move
	for _, key := range t.keys() {
		c := t.contests[key]
		if c.kept == cluster {
			c.keptUntil = time.Time{}
		}
		if c.createdFor == cluster {
			c.creating = 0
		}
		moves = append(moves, t.settle(key, c, now)...)
		t.drop(key, c, now)
	}
	return moves
}

// Resettle decides every contest anew, after the join order has changed.
func (t *Table) Resettle(now time.Time) []Move {
	var moves []Move
	for _, key := range t.keys() {
		c := t.contests[key]
		slices.SortFunc(c.holders, t.compare)
		moves = append(moves, t.settle(key, c, now)...)
		t.drop(key, c, now)
	}
	return moves
}

// Expire settles the contests whose reservation has ended.
func (t *Table) Expire(now time.Time) []Move {
	var due []cache.Key
	for key, c := range t.contests {
		if !c.keptUntil.IsZero() && !c.keeps(now) {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, cache.Key.Compare)
	var moves []Move
	for _, key := range due {
		c := t.contests[key]
		c.keptUntil = time.Time{}
		moves = append(moves, t.settle(key, c, now)...)
		t.drop(key, c, now)
	}
	return moves
}

// Restore tells of an object that is served under an alias, as after a restart.
// Who is served under its bare name is looked up.
func (t *Table) Restore(h Holder, alias cache.Key) {
	t.aliases[alias] = h
	c := t.contestOf(h.Source)
	if !slices.Contains(c.holders, h.Cluster) {
		c.holders = append(c.holders, h.Cluster)
		slices.SortFunc(c.holders, t.compare)
	}
}

// RestoreKept tells that a bare name was given up and is kept until a moment,
// unless somebody is served under it.
func (t *Table) RestoreKept(h Holder, until time.Time) {
	c := t.contestOf(h.Source)
	if c.owned {
		t.drop(h.Source, c, until)
		return
	}
	c.kept, c.keptUntil = h.Cluster, until
}

func (t *Table) keys() []cache.Key {
	keys := make([]cache.Key, 0, len(t.contests))
	for k := range t.contests {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cache.Key.Compare)
	return keys
}

// Holder says who serves the bare name or has it reserved.
func (t *Table) Holder(key cache.Key, now time.Time) (cache.ClusterName, bool) {
	if c, ok := t.contests[key]; ok {
		switch {
		case c.owned:
			return c.owner, true
		case c.creating > 0:
			return c.createdFor, true
		case c.keeps(now):
			return c.kept, true
		}
	}
	h, ok := t.served.At(key)
	return h.Cluster, ok
}

// Reserve holds a bare name for a cluster that is creating an object of it. It
// fails where another cluster holds an object of the name or is creating one.
// A name that is merely kept after a deletion is free to be created anew,
// wherever the new object is to be.
func (t *Table) Reserve(key cache.Key, cluster cache.ClusterName, now time.Time) bool {
	if h, ok := t.served.At(key); ok && h.Cluster != cluster {
		return false
	}
	c := t.contestOf(key)
	if c.creating > 0 && c.createdFor != cluster || slices.ContainsFunc(c.holders, func(n cache.ClusterName) bool { return n != cluster }) {
		t.drop(key, c, now)
		return false
	}
	c.creating++
	c.createdFor = cluster
	if c.kept != cluster {
		c.keptUntil = time.Time{}
	}
	return true
}

// Release ends one Reserve.
func (t *Table) Release(key cache.Key, cluster cache.ClusterName, now time.Time) []Move {
	c, ok := t.contests[key]
	if !ok || c.creating == 0 || c.createdFor != cluster {
		return nil
	}
	c.creating--
	moves := t.settle(key, c, now)
	t.drop(key, c, now)
	return moves
}

// choose picks who of the holders is served under the bare name.
func (c *contest) choose(holders []cache.ClusterName, now time.Time) (cache.ClusterName, bool) {
	if len(holders) == 0 {
		return "", false
	}
	if holders[0] == cache.ControlPlane {
		return holders[0], true
	}
	for _, r := range []struct {
		on      bool
		cluster cache.ClusterName
	}{{c.creating > 0, c.createdFor}, {c.keeps(now), c.kept}} {
		if r.on {
			return r.cluster, slices.Contains(holders, r.cluster)
		}
	}
	return holders[0], true
}

// settle moves the bare name to whom it belongs. A holder that was added just
// now and is to have an alias is not moved here.
func (t *Table) settle(key cache.Key, c *contest, now time.Time) []Move {
	owner, ok := c.choose(c.holders, now)
	if ok == c.owned && (!ok || owner == c.owner) {
		return nil
	}
	var moves []Move
	if c.owned && slices.Contains(c.holders, c.owner) {
		loser := Holder{c.owner, key}
		alias := t.alias(loser)
		t.aliases[alias] = loser
		moves = append(moves, Move{Holder: loser, From: key, To: alias})
	}
	c.owner, c.owned = owner, ok
	if ok {
		winner := Holder{owner, key}
		from := t.aliasInUse(winner)
		delete(t.aliases, from)
		moves = append(moves, Move{Holder: winner, From: from, To: key})
	}
	return moves
}

// drop forgets a contest that says no more than what is served.
func (t *Table) drop(key cache.Key, c *contest, now time.Time) {
	if c.creating > 0 || c.keeps(now) || len(c.holders) > 1 || len(c.holders) == 1 && !c.owned {
		return
	}
	delete(t.contests, key)
}

// evict gives a genuine name that is in use as an alias back.
func (t *Table) evict(h Holder) []Move {
	victim, ok := t.aliases[h.Source]
	if !ok {
		return nil
	}
	delete(t.aliases, h.Source)
	alias := t.aliasUnless(victim, h.Source)
	t.aliases[alias] = victim
	return []Move{{Holder: victim, From: h.Source, To: alias}}
}

// aliasInUse is the alias under which a holder is served, or no key.
func (t *Table) aliasInUse(h Holder) cache.Key {
	for n := range maxTries {
		key := aliasKey(h, n)
		if t.aliases[key] == h {
			return key
		}
	}
	return cache.Key{}
}

// alias is the alias of a holder: the one in use, or the first free one.
func (t *Table) alias(h Holder) cache.Key {
	if key := t.aliasInUse(h); key != (cache.Key{}) {
		return key
	}
	return t.aliasUnless(h, cache.Key{})
}

func (t *Table) aliasUnless(h Holder, taken cache.Key) cache.Key {
	for n := range maxTries - 1 {
		key := aliasKey(h, n)
		if key == taken {
			continue
		}
		if _, ok := t.aliases[key]; ok {
			continue
		}
		if _, ok := t.served.At(key); !ok {
			return key
		}
	}
	return aliasKey(h, maxTries-1)
}

// maxTries bounds the search for a free alias; the second try is 64 bits of
// hash already.
const maxTries = 4

// aliasKey is the n-th choice for an alias: NAME.CLUSTER, then hashed forms.
func aliasKey(h Holder, n int) cache.Key {
	name := h.Source.Name + "." + string(h.Cluster)
	if n > 0 || len(name) > maxName {
		sum := sha256.Sum256([]byte(h.Source.Name + "\x00" + string(h.Cluster) + string(rune('0'+n))))
		tail := "-" + hex.EncodeToString(sum[:8]) + "." + string(h.Cluster)
		head := h.Source.Name
		if room := maxName - len(tail); len(head) > room {
			head = strings.TrimRight(head[:max(room, 0)], "-.")
		}
		name = head + tail
	}
	return cache.Key{Namespace: h.Source.Namespace, Name: name}
}
