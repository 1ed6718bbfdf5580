package placement

import (
	"container/heap"
	"hash/fnv"
	"math"

	"k8s.io/apimachinery/pkg/types"
)

// Share is one cluster's claim on replicas.
type Share struct {
	Cluster string
	// Weight is at least 0; a cluster of weight 0 is given nothing new.
	Weight int64
	// Held is what the cluster has now.
	Held int32
	// Frozen clusters keep what they hold: they are unhealthy, and nobody can
	// say what runs there.
	Frozen bool
}

// Divide assigns total replicas by Webster's method (each seat goes to the
// largest weight/(2*seats+1)), which is monotone in the total.
//
// A fresh division looks at what is held only to break ties; otherwise only
// the difference moves: more replicas take nothing from anybody, fewer give
// nothing to anybody. Remaining ties are broken by a hash of the object and
// the cluster, so that single replicas of many objects spread.
//
// The sum differs from total only where frozen clusters hold more than total,
// or where no cluster has a weight.
func Divide(total int32, shares []Share, uid types.UID, fresh bool) map[string]int32 {
	seats := make([]seat, 0, len(shares))
	out := make(map[string]int32, len(shares))
	shift := weightShift(shares)
	for _, s := range shares {
		if s.Frozen {
			out[s.Cluster] = s.Held
			total -= min(total, s.Held)
			continue
		}
		w := s.Weight
		if w > 0 {
			w = max(w>>shift, 1)
		}
		seats = append(seats, seat{cluster: s.Cluster, weight: w, held: int64(s.Held), tie: tieBreak(uid, s.Cluster)})
	}
	if !fresh {
		for i := range seats {
			seats[i].n = seats[i].held
		}
	}
	settle(int64(total), seats)
	for _, s := range seats {
		out[s.cluster] = int32(s.n)
	}
	return out
}

// seat is the state of one cluster during a division.
type seat struct {
	cluster string
	weight  int64 // at most maxWeight
	held    int64
	n       int64
	tie     uint64
}

// maxWeight keeps weight*(2*seats+1) within 63 bits.
const maxWeight = 1 << 30

func weightShift(shares []Share) (shift uint) {
	var largest int64
	for _, s := range shares {
		largest = max(largest, s.Weight)
	}
	for largest>>shift > maxWeight {
		shift++
	}
	return shift
}

func tieBreak(uid types.UID, cluster string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid))
	_, _ = h.Write([]byte{'/'})
	_, _ = h.Write([]byte(cluster))
	// The last bytes hardly move the high bits of FNV: mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

func sum(seats []seat) (n int64) {
	for _, s := range seats {
		n += s.n
	}
	return n
}

// settle moves the seats to the total, one by one in Webster's order after a
// jump that leaves only a few per cluster to do.
func settle(total int64, seats []seat) {
	have := sum(seats)
	switch {
	case total > have:
		jumpUp(total, seats)
		q := &seatQueue{before: awardedBefore}
		for i := range seats {
			if seats[i].weight > 0 {
				q.seats = append(q.seats, &seats[i])
			}
		}
		q.move(total-sum(seats), +1)
	case total < have:
		jumpDown(total, seats)
		q := &seatQueue{before: takenBefore}
		for i := range seats {
			if seats[i].n > 0 {
				q.seats = append(q.seats, &seats[i])
			}
		}
		q.move(sum(seats)-total, -1)
	}
}

// upTo is about the number of seats of s whose quotient is at least 1/scale.
func (s *seat) upTo(scale float64) int64 {
	return int64(math.Min(float64(s.weight)*scale+0.5, math.MaxInt32))
}

// jumpUp awards the seats that every order of awards would award: those with
// a quotient clearly above the last one. It leaves a margin for rounding, so
// the result never exceeds the final division.
func jumpUp(total int64, seats []seat) {
	fits := func(scale float64) bool {
		var n int64
		for i := range seats {
			n += max(seats[i].n, seats[i].upTo(scale))
		}
		return n <= total
	}
	lo := bisect(total, fits)
	for i := range seats {
		if k := seats[i].upTo(lo) - 1; seats[i].weight > 0 && k > seats[i].n {
			seats[i].n = k
		}
	}
}

// jumpDown is jumpUp for seats that are taken away.
func jumpDown(total int64, seats []seat) {
	tooFew := func(scale float64) bool {
		var n int64
		for i := range seats {
			n += min(seats[i].n, seats[i].upTo(scale))
		}
		return n <= total
	}
	// The largest scale that keeps too few, doubled in margin by two seats,
	// keeps at least the final division.
	lo := bisect(total, tooFew)
	for i := range seats {
		if k := seats[i].upTo(lo*(1+1e-9)) + 2; k < seats[i].n {
			seats[i].n = k
		}
	}
}

// bisect finds about the largest scale for which ok holds; ok is true at 0.
func bisect(total int64, ok func(float64) bool) float64 {
	lo, hi := 0.0, float64(total)+1
	for range 80 {
		mid := lo + (hi-lo)/2
		if ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// seatQueue orders clusters by whose seat is next to move.
type seatQueue struct {
	seats  []*seat
	before func(a, b *seat) bool
}

func (q *seatQueue) move(count, step int64) {
	heap.Init(q)
	for ; count > 0 && len(q.seats) > 0; count-- {
		top := q.seats[0]
		top.n += step
		if top.n == 0 && step < 0 {
			heap.Pop(q)
			continue
		}
		heap.Fix(q, 0)
	}
}

// awardedBefore: larger weight/(2n+1) first; then who would only get back
// what it holds; then the hash.
func awardedBefore(a, b *seat) bool {
	l, r := a.weight*(2*b.n+1), b.weight*(2*a.n+1)
	if l != r {
		return l > r
	}
	if ah, bh := a.n < a.held, b.n < b.held; ah != bh {
		return ah
	}
	return tieBefore(a, b)
}

// takenBefore: smaller weight/(2n-1) first, then the reverse of awardedBefore.
func takenBefore(a, b *seat) bool {
	l, r := a.weight*(2*b.n-1), b.weight*(2*a.n-1)
	if l != r {
		return l < r
	}
	return tieBefore(b, a)
}

func tieBefore(a, b *seat) bool {
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return a.cluster < b.cluster
}

func (q *seatQueue) Len() int           { return len(q.seats) }
func (q *seatQueue) Less(i, j int) bool { return q.before(q.seats[i], q.seats[j]) }
func (q *seatQueue) Swap(i, j int)      { q.seats[i], q.seats[j] = q.seats[j], q.seats[i] }
func (q *seatQueue) Push(x any)         { q.seats = append(q.seats, x.(*seat)) }
func (q *seatQueue) Pop() any {
	last := q.seats[len(q.seats)-1]
	q.seats = q.seats[:len(q.seats)-1]
	return last
}
