package quota

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Plan is the shares that the clusters should come to. The former ones stay as
// long as they are enough for all: limits do not move for the sake of beauty.
// Of every resource the shares add up to the limit.
func Plan(hard corev1.ResourceList, clusters []Cluster, former Shares, uid types.UID) Shares {
	out := Shares{}
	for _, c := range clusters {
		out[c.Name] = corev1.ResourceList{}
	}
	for name, q := range hard {
		if !Divided(name) {
			for _, c := range clusters {
				out[c.Name][name] = q
				if fixed, ok := c.Fixed[name]; ok {
					out[c.Name][name] = fixed
				}
			}
			continue
		}
		total := limit(name, q)
		parts, left := settled(name, total, clusters, former)
		uses := usesOf(name, total, clusters, former)
		if kept := keep(left, uses); kept != nil {
			maps.Copy(parts, kept)
		} else {
			maps.Copy(parts, divide(left, uses, uid))
		}
		for cluster, n := range parts {
			out[cluster][name] = *quantity(name, n, q.Format)
		}
	}
	return out
}

// settled are the shares that somebody has given, and those of clusters that are
// out of reach, and what is left.
func settled(name corev1.ResourceName, total int64, clusters []Cluster, former Shares) (parts map[string]int64, left int64) {
	parts, left = map[string]int64{}, total
	for _, c := range clusters {
		fixed, given := c.Fixed[name]
		if !given && !c.Frozen {
			continue
		}
		n := limit(name, fixed)
		if !given {
			n = units(name, former[c.Name][name])
		}
		parts[c.Name] = min(n, left)
		left -= parts[c.Name]
	}
	return parts, left
}

// use is one cluster's part in the division of one resource.
type use struct {
	cluster     string
	used, needs int64 // needs is at least used
	former      int64
	known       bool // former is something
}

func usesOf(name corev1.ResourceName, total int64, clusters []Cluster, former Shares) []use {
	out := make([]use, 0, len(clusters))
	for _, c := range clusters {
		if _, given := c.Fixed[name]; given || c.Frozen {
			continue
		}
		u := use{cluster: c.Name, used: min(units(name, c.Used[name]), math.MaxInt32<<20)}
		u.needs = max(u.used, min(units(name, c.Wanted[name]), total))
		if was, ok := former[c.Name][name]; ok {
			u.former, u.known = units(name, was), true
		}
		if u.known && u.used > 0 && u.former-u.used <= u.used/nearlyFull && u.needs <= u.former {
			// What is full may be so because it would go on.
			u.needs = max(u.needs, u.used+max(total/int64(4*len(clusters)), 1))
		}
		out = append(out, u)
	}
	return out
}

// nearlyFull: less than a 20th of what is used is free.
const nearlyFull = 20

// keep returns the former shares where they are enough for all and what is full
// could not be given more.
func keep(total int64, uses []use) map[string]int64 {
	out := map[string]int64{}
	for _, u := range uses {
		if !u.known || u.former < u.needs {
			return nil
		}
		out[u.cluster] = u.former
		if total -= u.former; total < 0 {
			return nil
		}
	}
	if total != 0 {
		return nil
	}
	return out
}

// divide gives everybody what is used, then what is needed, then a part of the
// rest in proportion to that, and something to who has had no need so far.
func divide(total int64, uses []use, uid types.UID) map[string]int64 {
	used, needed := make([]int64, len(uses)), make([]int64, len(uses))
	spare := make([]int64, len(uses))
	var sumUsed, sumNeeded int64
	for i, u := range uses {
		used[i], needed[i] = u.used, u.needs-u.used
		sumUsed, sumNeeded = add(sumUsed, used[i]), add(sumNeeded, needed[i])
		spare[i] = add(u.needs, total/int64(4*len(uses)))
	}
	var parts []int64
	switch {
	case sumUsed >= total:
		parts = apportion(total, used, uses, uid)
	case sumNeeded >= total-sumUsed:
		parts = plus(used, apportion(total-sumUsed, needed, uses, uid))
	default:
		parts = plus(plus(used, needed), apportion(total-sumUsed-sumNeeded, spare, uses, uid))
	}
	out := make(map[string]int64, len(uses))
	for i, u := range uses {
		out[u.cluster] = parts[i]
	}
	return out
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func plus(a, b []int64) []int64 {
	out := make([]int64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// apportion divides by largest remainder; without any weight, equally.
func apportion(total int64, weights []int64, uses []use, uid types.UID) []int64 {
	out := make([]int64, len(weights))
	weights, sum := scaled(weights)
	if len(weights) == 0 || total <= 0 {
		return out
	}
	type rest struct {
		i    int
		rest uint64
		tie  uint64
	}
	rests := make([]rest, 0, len(weights))
	left := total
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), uint64(w))
		n, r := bits.Div64(hi, lo, uint64(sum))
		out[i] = int64(n)
		left -= int64(n)
		rests = append(rests, rest{i, r, tie(uid, uses[i].cluster)})
	}
	slices.SortFunc(rests, func(a, b rest) int { return cmp.Or(cmp.Compare(b.rest, a.rest), cmp.Compare(a.tie, b.tie)) })
	for i := range left { // fewer than there are clusters
		out[rests[i].i]++
	}
	return out
}

// scaled are weights whose sum is small enough, and their sum.
func scaled(weights []int64) (out []int64, sum int64) {
	out = slices.Clone(weights)
	var largest int64
	for _, w := range out {
		largest = max(largest, w)
	}
	for i := range out {
		for l := largest; l > math.MaxInt32; l >>= 1 {
			out[i] >>= 1
		}
		sum += out[i]
	}
	if sum == 0 {
		for i := range out {
			out[i] = 1
		}
		sum = int64(len(out))
	}
	return out, sum
}

func tie(uid types.UID, cluster string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(uid) + "/" + cluster))
	return h.Sum64()
}
