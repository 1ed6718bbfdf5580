package engine

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// place fills in the targets: those of the policy, and those that others need.
func (e *Engine) place(key marks.Key, t *template, b *binding, s shape, want *workv1alpha2.ResourceBindingSpec, required []string, d *decision) {
	previous := e.previous(key, t, b)
	targets := map[string]int32{}
	d.node = e.nodeOf(s)
	e.evictions(key, t, b, want, d, time.Now())
	if want.Placement != nil {
		d.divided = divisible(key.GroupKind()) || s.counted != nil
		for _, target := range e.choose(key, t, b, s, want, previous, d) {
			targets[target.Cluster] = target.Replicas
		}
	}
	known := map[string]bool{}
	for _, m := range e.memberList() {
		known[m.name] = true
	}
	if sticky(key.GroupKind()) {
		for _, p := range previous {
			required = append(required, p.Cluster)
		}
	}
	for _, cluster := range required {
		if _, ok := targets[cluster]; !ok && known[cluster] && (d.limit.allows(cluster) || holds(previous, cluster)) {
			targets[cluster] = 0
		}
	}
	if d.targets = targets; d.eviction != nil {
		want.GracefulEvictionTasks = d.eviction.tasks
	}
	switch key.GroupKind() {
	case autoscalerKind:
		e.divideScaler(t, d)
	case budgetKind:
		e.divideBudget(t, d)
	case quotaKind:
		e.divideQuota(key, t, b, d)
	}
	for _, cluster := range slices.Sorted(maps.Keys(targets)) {
		if known[cluster] {
			want.Clusters = append(want.Clusters, workv1alpha2.TargetCluster{Name: cluster, Replicas: targets[cluster]})
		} else {
			delete(targets, cluster)
		}
	}
}

func holds(targets []placement.Target, cluster string) bool {
	return slices.ContainsFunc(targets, func(t placement.Target) bool { return t.Cluster == cluster })
}

// previous targets: those recorded, or else what is found in the members.
func (e *Engine) previous(key marks.Key, t *template, b *binding) []placement.Target {
	var out []placement.Target
	if b != nil && b.Spec.Resource.UID == t.UID {
		for _, c := range b.Spec.Clusters {
			out = append(out, placement.Target{Cluster: c.Name, Replicas: c.Replicas})
		}
		return append(out, e.stillThere(key, b)...)
	}
	for _, m := range e.memberList() {
		if c := m.copy(key); c != nil && c.owned {
			out = append(out, placement.Target{Cluster: m.name, Replicas: c.replicas})
		}
	}
	if len(out) == 0 && b == nil && adopts[key.GroupKind()] && e.cfg.Unowned != nil {
		return e.adoptable(t)
	}
	return out
}

// stillThere are copies that the recorded placement leaves out and the breaker
// has kept: where the cluster fits again, they are targets as before.
func (e *Engine) stillThere(key marks.Key, b *binding) []placement.Target {
	var out []placement.Target
	for _, m := range e.memberList() {
		c := m.copy(key)
		if c == nil || !c.owned || m.record(key).waits == "" || slices.Contains(clusterNames(b.Spec.Clusters), m.name) {
			continue
		}
		out = append(out, placement.Target{Cluster: m.name, Replicas: c.replicas})
	}
	return out
}

// choose asks placement where there is something to choose.
func (e *Engine) choose(key marks.Key, t *template, b *binding, s shape, want *workv1alpha2.ResourceBindingSpec, previous []placement.Target, d *decision) []placement.Target {
	in := placement.Input{
		UID: t.UID, Placement: *want.Placement, Divisible: d.divided, Replicas: want.Replicas,
		Previous: previous, Group: e.groupInUse(key, t, b),
		Overcommit: d.follows.policy == nil || d.follows.policy.Default,
	}
	in.Fresh, in.Restart = fresh(t, b, want)
	now := time.Now()
	var again time.Time
	in.Clusters, again = e.clusters(key, s, want, now)
	d.lookAgain(again, now)
	e.avoid(key, t, want, in.Clusters, previous, d)
	in.Clusters = d.node.around(in.Clusters)
	in.Together, in.Apart = e.cohort(key, want.WorkloadAffinityGroups)
	if d.follows.waits != "" {
		d.retry()
	}
	d.group = in.Group
	switch {
	case want.Suspension != nil && ptr.Deref(want.Suspension.Scheduling, false):
		d.reason, d.problem = reasonSuspended, "decisions are suspended: spec.suspension.scheduling of the binding"
		return previous
	case d.limit.problem != "":
		d.reason, d.problem = placement.ReasonNoCluster, d.limit.String()
		return previous
	case d.follows.waits != "" && len(previous) == 0:
		d.reason, d.problem = reasonPolicyWaits, d.follows.waits
		return previous
	case !placement.Due(in):
		d.reason = placement.ReasonSuccess
		d.postponed()
		return previous
	}
	result := e.anchored(t, s, in, placement.Place(in))
	for result.OK() && d.keepOne(want, in.Clusters, previous, result.Targets) {
		result = e.anchored(t, s, in, placement.Place(in))
	}
	d.group, d.reason = result.Group, result.Reason
	if !result.OK() || result.Reason == placement.ReasonPostponed {
		d.problem = result.Message
	}
	if !result.OK() && d.limit.limits() {
		d.problem += "; " + d.limit.String()
	}
	if !result.OK() {
		d.retry() // room comes and goes without an event
	} else {
		e.begin(want, previous, result.Targets, in.Clusters, d, now)
		d.postponed()
	}
	return result.Targets
}

// retry has the decision made again soon.
func (d *decision) retry() {
	if d.again == 0 || d.again > retryPlacement {
		d.again = retryPlacement
	}
}

// postponed says which moves wait although there is a place.
func (d *decision) postponed() {
	if d.eviction == nil || len(d.eviction.pending) == 0 {
		return
	}
	d.reason, d.problem = placement.ReasonPostponed, pendingMoves(d.eviction)
	d.retry()
}

// retryPlacement is when a placement that was not possible is tried again.
const retryPlacement = 10 * time.Second

// Reasons of the condition Scheduled beside those of placement.
const (
	reasonSuspended   = "SchedulingSuspended"
	reasonPolicyWaits = "PolicyWaits"
)

// groupInUse is the affinity group of the last decision, which the status may
// not show yet.
func (e *Engine) groupInUse(key marks.Key, t *template, b *binding) string {
	if d := e.decisionOf(key); d != nil && d.uid == t.UID {
		return d.group
	}
	if b != nil && b.Spec.Resource.UID == t.UID {
		return b.Status.SchedulerObservedAffinityName
	}
	return ""
}

// fresh says whether the placement has changed or a new decision is asked for;
// restart, that it is asked for.
func fresh(t *template, b *binding, want *workv1alpha2.ResourceBindingSpec) (fresh, restart bool) {
	if b == nil || b.Spec.Resource.UID != t.UID {
		return false, false
	}
	if r := b.Spec.RescheduleTriggeredAt; r != nil && (b.Status.LastScheduledTime == nil || r.After(b.Status.LastScheduledTime.Time)) {
		return true, true
	}
	return b.Spec.Placement != nil && !equality.Semantic.DeepEqual(b.Spec.Placement, want.Placement), false
}

// clusters are the members as placement sees them, for a template and the
// policy that speaks for it. next is when time alone changes what is said.
func (e *Engine) clusters(key marks.Key, s shape, want *workv1alpha2.ResourceBindingSpec, now time.Time) (out []placement.Cluster, next time.Time) {
	request := s.request
	if request == nil && s.Spec.Template != nil && s.Spec.Template.Spec != nil {
		request = placement.Request(s.Spec.Template.Spec)
	}
	members := e.memberList()
	out = make([]placement.Cluster, 0, len(members))
	broken := 0
	for _, m := range members {
		c := m.cluster()
		c.Lacks = e.missing(m, schema.FromAPIVersionAndKind(want.Resource.APIVersion, want.Resource.Kind))
		if request != nil {
			c.Available = placement.Room(m.info().Free, request)
		}
		c.Unmade = m.copy(key).unmade()
		if !c.Ready {
			broken++
		}
		out = append(out, c)
	}
	if want.Failover == nil || placement.FleetFails(broken, len(out)) {
		return out, time.Time{}
	}
	for i, m := range members {
		outage := placement.Outage{Ready: out[i].Ready, Since: m.info().NotReadySince, Taints: out[i].Taints}
		why, at := placement.Failed(want.Failover, want.Placement.ClusterTolerations, outage, now)
		out[i].Failed = why
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() {
		next = next.Add(time.Second)
	}
	return out, next
}
