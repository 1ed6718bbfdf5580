package placement

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// Outage is what is known of a cluster's trouble.
type Outage struct {
	Ready bool
	// Since is when it was last ready.
	Since  time.Time
	Taints []corev1.Taint
}

// defaultToleration is how long a failure is tolerated unless the policy says.
const defaultToleration = 300 * time.Second

// Failed says why replicas may leave a cluster, or "" and when it has to be
// looked at again. Without failover in the policy none ever leaves.
//
// A cluster that is out of reach, or tainted PreferNoExecute, is tolerated for
// as long as the failover says. A taint NoExecute is tolerated as long as a
// toleration of the policy says, and otherwise not at all.
func Failed(f *policyv1alpha1.FailoverBehavior, tolerations []corev1.Toleration, o Outage, now time.Time) (why string, next time.Time) {
	if f == nil || f.Cluster == nil {
		return "", time.Time{}
	}
	tolerated := defaultToleration
	if s := f.Cluster.TolerationSeconds; s != nil {
		tolerated = time.Duration(*s) * time.Second
	}
	consider := func(end time.Time, reason string) {
		switch {
		case !end.After(now):
			why = reason
		case next.IsZero() || end.Before(next):
			next = end
		}
	}
	if !o.Ready && !o.Since.IsZero() {
		consider(o.Since.Add(tolerated), "out of reach for too long")
	}
	for i := range o.Taints {
		t := &o.Taints[i]
		switch t.Effect {
		case corev1.TaintEffectNoExecute:
			if end, forever := toleratedUntil(tolerations, t); !forever {
				consider(end, fmt.Sprintf("tainted %s", t.ToString()))
			}
		case policyv1alpha1.TaintEffectPreferNoExecute:
			if t.TimeAdded != nil {
				consider(t.TimeAdded.Add(tolerated), fmt.Sprintf("tainted %s", t.ToString()))
			}
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		}
	}
	if why != "" {
		return why, time.Time{}
	}
	return "", next
}

// toleratedUntil: the shortest of the tolerations that match counts. While
// nobody knows since when the taint is there, its time does not begin.
func toleratedUntil(tolerations []corev1.Toleration, t *corev1.Taint) (end time.Time, forever bool) {
	matched := false
	shortest := time.Duration(-1)
	for _, tol := range tolerations {
		if !tolerates(tol, *t) {
			continue
		}
		matched = true
		if tol.TolerationSeconds == nil {
			continue
		}
		if d := time.Duration(max(*tol.TolerationSeconds, 0)) * time.Second; shortest < 0 || d < shortest {
			shortest = d
		}
	}
	switch {
	case !matched:
		return time.Time{}, false
	case shortest < 0 || t.TimeAdded == nil:
		return time.Time{}, true
	}
	return t.TimeAdded.Add(shortest), false
}

// FleetFails says whether more than half of the clusters are broken: then it is
// more likely that the control plane is cut off, and nothing leaves any of them.
func FleetFails(broken, all int) bool { return 2*broken > all }
