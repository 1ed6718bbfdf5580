// Package quota divides a ResourceQuota over the clusters, so that what all
// clusters allow together is what was meant, at every moment:
//
//	hard, used and wanted per cluster   -> Plan -> the shares to come to
//	shares to come to, what is on record,
//	limits seen in the members          -> State.Next -> granted, told
//
// Only what members make for themselves is divided: Pods and what they ask for,
// claims, Jobs. Everything else is a template that the control plane has counted
// once, however many copies it has: each cluster is told the whole number.
package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Assignments is the annotation of a ResourceQuota that holds the limits that are not divided but
// given, as JSON of Shares.
const Assignments = "isthmus.dev/quota-assignments"

// Shares are limits by cluster.
type Shares map[string]corev1.ResourceList

// Cluster is what is known of one cluster that a quota is for.
type Cluster struct {
	Name string
	// Used is what the cluster counts, Wanted what is meant to run there.
	Used, Wanted corev1.ResourceList
	// Fixed are limits that somebody has given to this cluster.
	Fixed corev1.ResourceList
	// Frozen clusters are out of reach: nobody can say what runs there, and what
	// they were granted stays theirs.
	Frozen bool
}

// whole are counts of objects that are templates, one for all their copies.
var whole = map[corev1.ResourceName]bool{
	corev1.ResourceServices: true, corev1.ResourceServicesLoadBalancers: true, corev1.ResourceServicesNodePorts: true,
	corev1.ResourceConfigMaps: true, corev1.ResourceSecrets: true, corev1.ResourceReplicationControllers: true,
	corev1.ResourceQuotas: true,
}

// Divided says whether the sum over the clusters is limited, or every cluster.
func Divided(name corev1.ResourceName) bool {
	if counted, ok := strings.CutPrefix(string(name), "count/"); ok {
		switch counted {
		case "pods", "persistentvolumeclaims", "jobs.batch":
			return true
		}
		return false
	}
	return !whole[name]
}

// milli: a resource is divided in thousandths, others in whole numbers.
func milli(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceRequestsCPU || name == corev1.ResourceLimitsCPU
}

// units rounds up, as counting does.
func units(name corev1.ResourceName, q resource.Quantity) int64 {
	if milli(name) {
		return max(q.MilliValue(), 0)
	}
	return max(q.Value(), 0)
}

// limit is a limit in units: one that is not a whole number of them allows no
// more than the number below.
func limit(name corev1.ResourceName, q resource.Quantity) int64 {
	n := units(name, q)
	if n > 0 && quantity(name, n, q.Format).Cmp(q) > 0 {
		n--
	}
	return n
}

// quantityFormat is how a quantity is written.
type quantityFormat = resource.Format

func quantity(name corev1.ResourceName, n int64, format quantityFormat) *resource.Quantity {
	if milli(name) {
		return resource.NewMilliQuantity(n, format)
	}
	return resource.NewQuantity(n, format)
}
