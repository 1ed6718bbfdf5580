// Package disruption divides a PodDisruptionBudget over the clusters of what it
// selects, so that what all clusters allow together is what was meant.
//
//	minAvailable or maxUnavailable, replicas per cluster -> Divide -> numbers
//
// Percentages are of what each cluster has, and stay.
package disruption

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Divide gives every cluster its part by replicas; the sum is the whole. A
// value that is not a number is not divided: nil.
func Divide(value *intstr.IntOrString, replicas map[string]int32, uid types.UID) map[string]int32 {
	if value == nil || value.Type != intstr.Int || value.IntVal < 0 {
		return nil
	}
	shares := make([]placement.Share, 0, len(replicas))
	weighted := false
	for cluster, n := range replicas {
		weighted = weighted || n > 0
		shares = append(shares, placement.Share{Cluster: cluster, Weight: int64(n)})
	}
	if !weighted {
		return nil
	}
	return placement.Divide(value.IntVal, shares, uid, true)
}
