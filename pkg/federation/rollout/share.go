package rollout

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Budget is how far a workload may leave its number of replicas, over all
// clusters or in one.
type Budget struct {
	Surge, Unavailable int32
}

// Resolve makes numbers of a Deployment's maxSurge and maxUnavailable. Nil is
// the API's default, 25%. As in one cluster, a budget of nothing is one Pod.
func Resolve(replicas int32, surge, unavailable *intstr.IntOrString) (Budget, error) {
	quarter := intstr.FromString("25%")
	s, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(surge, quarter), int(replicas), true)
	if err != nil {
		return Budget{}, fmt.Errorf("maxSurge: %w", err)
	}
	u, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(unavailable, quarter), int(replicas), false)
	if err != nil {
		return Budget{}, fmt.Errorf("maxUnavailable: %w", err)
	}
	b := Budget{Surge: int32(max(s, 0)), Unavailable: int32(max(u, 0))}
	if b == (Budget{}) {
		b.Unavailable = 1
	}
	return b, nil
}

// Split gives every cluster its share by replicas, so that the sums keep the
// budget. A cluster that would get nothing is lent one Pod's worth: it has to
// wait for its turn.
func Split(b Budget, replicas map[string]int32, uid types.UID) map[string]Budget {
	var total int32
	for _, n := range replicas {
		total += n
	}
	b.Unavailable = min(b.Unavailable, max(total, 1))
	units := byWeight(b.Surge+b.Unavailable, replicas, uid)
	down := byWeight(b.Unavailable, units, uid)
	keepWithin(down, units)
	out := make(map[string]Budget, len(replicas))
	for cluster := range replicas {
		share := Budget{Surge: units[cluster] - down[cluster], Unavailable: down[cluster]}
		if share == (Budget{}) {
			if b.Unavailable > 0 {
				share.Unavailable = 1
			} else {
				share.Surge = 1
			}
		}
		out[cluster] = share
	}
	return out
}

func byWeight(total int32, weights map[string]int32, uid types.UID) map[string]int32 {
	shares := make([]placement.Share, 0, len(weights))
	for cluster, w := range weights {
		shares = append(shares, placement.Share{Cluster: cluster, Weight: int64(w)})
	}
	return placement.Divide(total, shares, uid, true)
}

// keepWithin moves what exceeds a limit to where there is room.
func keepWithin(n, limit map[string]int32) {
	var over int32
	names := make([]string, 0, len(n))
	for cluster := range n {
		names = append(names, cluster)
		if d := n[cluster] - limit[cluster]; d > 0 {
			n[cluster] -= d
			over += d
		}
	}
	slices.Sort(names)
	for _, cluster := range names {
		d := min(over, limit[cluster]-n[cluster])
		n[cluster] += d
		over -= d
	}
}
