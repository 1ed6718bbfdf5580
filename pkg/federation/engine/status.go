package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// statusMemo is the last status written for a template.
type statusMemo struct {
	uid       types.UID
	version   string // resourceVersion of the answer
	status    map[string]any
	at        time.Time
	revisions time.Time // when the ReplicaSets' counts were written
	synced    int64     // generation for which complete propagation was told
}

// reconcileStatus makes the template's status of its copies'.
func (e *Engine) reconcileStatus(ctx context.Context, key marks.Key) error {
	t, d := e.template(key), e.decisionOf(key)
	if t == nil {
		e.mu.Lock()
		delete(e.statuses, key)
		e.mu.Unlock()
		return nil
	}
	if d == nil || t.DeletionTimestamp != nil || d.uid != t.UID {
		return nil
	}
	parts, problems, err := e.parts(key, t, d) //nolint:contextcheck // scripts are bounded by the sandbox
	if err != nil {
		return err
	}
	e.noteHealth(key, t, d, parts)
	if underWay(parts, problems) && time.Since(d.at) < firstWrites {
		// What is said now would be unsaid in a moment.
		e.statusQueue.AddAfter(key, 250*time.Millisecond)
		return nil
	}
	if err := e.writeConditions(ctx, key, t, d, parts, problems); err != nil {
		return err
	}
	if !hasStatus(key.GroupKind()) {
		return nil
	}
	if err := e.writeStatus(ctx, key, t, d, parts, problems); err != nil {
		return err
	}
	if key.GroupKind() == deploymentKind {
		return e.countRevisions(ctx, key, t)
	}
	return nil
}

// parts are the copies of a template, and the problems with them by cluster.
func (e *Engine) parts(key marks.Key, t *template, d *decision) ([]aggregate.Part, map[string]string, error) {
	parts := make([]aggregate.Part, 0, len(d.targets))
	problems := map[string]string{}
	for _, cluster := range slices.Sorted(maps.Keys(d.targets)) {
		p := aggregate.Part{Cluster: cluster, Desired: d.targets[cluster]}
		m := e.member(cluster)
		if m == nil {
			problems[cluster] = "the cluster has left"
			parts = append(parts, p)
			continue
		}
		last, there := m.record(key), m.copy(key)
		if divisible(key.GroupKind()) {
			there, last = m.newest(key)
			p.Unreported = last.reportDue(there)
		}
		p.Applied = last.template == t.UID && last.generation == t.Generation && last.problem == "" && last.waits == ""
		if there != nil && there.owned {
			p.Exists, p.Generation = true, there.Generation
			if last.uid == there.UID {
				p.Generation = max(p.Generation, last.copyGen)
			}
			if err := e.readStatus(key, t, m, there, &p); err != nil {
				return nil, nil, err
			}
		}
		switch info := m.info(); {
		case !info.Ready:
			problems[cluster] = "the cluster is not ready"
			p.StaleSince = e.stale(key, info)
		case d.isSuspended(cluster):
			problems[cluster] = "dispatching is suspended"
		case last.waits != "":
			problems[cluster] = last.waits
		case last.problem != "":
			problems[cluster] = last.problem
		case last.turn:
			problems[cluster], p.Withheld = "waits for its turn in the rollout", true
		case !p.Applied:
			problems[cluster] = notWritten
		}
		parts = append(parts, p)
	}
	return parts, problems, nil
}

// stale says since when a member has been unreachable, once that is longer
// than the grace; before, it has the status looked at again in time.
func (e *Engine) stale(key marks.Key, m Member) string {
	since := m.NotReadySince
	if since.IsZero() {
		since = time.Now()
	}
	if left := e.cfg.Grace - time.Since(since); left > 0 {
		e.statusQueue.AddAfter(key, left+time.Second)
		return ""
	}
	return since.UTC().Format(time.RFC3339)
}

func (e *Engine) memo(key marks.Key, uid types.UID) statusMemo {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if m := e.statuses[key]; m != nil && m.uid == uid {
		return *m
	}
	return statusMemo{uid: uid}
}

func (e *Engine) setMemo(key marks.Key, fn func(*statusMemo)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.statuses[key]
	if m == nil {
		m = &statusMemo{}
		e.statuses[key] = m
	}
	fn(m)
}

// writeStatus writes the template's status when it is time to.
func (e *Engine) writeStatus(ctx context.Context, key marks.Key, t *template, d *decision, parts []aggregate.Part, problems map[string]string) error {
	u, err := t.decode()
	if err != nil {
		return err
	}
	former, _ := u.Object["status"].(map[string]any)
	memo := e.memo(key, t.UID)
	if memo.version != "" && newer(memo.version, t.ResourceVersion) {
		former = memo.status
	}
	replicas := int32(0)
	if spec, ok := u.Object["spec"].(map[string]any); ok {
		if n, ok := spec["replicas"].(int64); ok {
			replicas = int32(n)
		}
	}
	next := e.statusOf(key, t, u, aggregate.Input{ //nolint:contextcheck // scripts are bounded by the sandbox
		Kind: key.GroupKind(), Generation: t.Generation, Replicas: replicas, Former: former,
		Decided: d.content == t.content && d.generation == t.Generation, Problem: d.problem, Parts: parts,
	}, problems)
	if next == nil {
		return nil
	}
	fillTimes(next, time.Now())
	patch := statusPatch(key, former, next)
	if len(patch) == 0 {
		return nil
	}
	if wait := time.Until(memo.at.Add(e.pause(urgencyOf(former, next)))); wait > 0 {
		e.statusQueue.AddAfter(key, wait)
		return nil
	}
	return e.patchStatus(ctx, key, t, patch, next)
}

func (e *Engine) patchStatus(ctx context.Context, key marks.Key, t *template, patch, next map[string]any) error {
	w := e.kindOf(key.GroupKind())
	if w == nil {
		return errStale
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.UID}, "status": patch})
	if err != nil {
		return fmt.Errorf("status of %s: %w", key, err)
	}
	writes.WithLabelValues("status").Inc()
	got, err := e.client.Resource(w.gvr()).Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: marks.StatusManager}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted, or a custom resource without status
	case err != nil:
		return fmt.Errorf("status of %s: %w", key, err)
	}
	e.setMemo(key, func(m *statusMemo) {
		*m = statusMemo{uid: t.UID, version: got.GetResourceVersion(), status: next, at: time.Now(), revisions: m.revisions, synced: m.synced}
	})
	return nil
}

// statusPatch is the merge patch from the former status to the next one; of
// kinds whose status has other writers, only our part.
func statusPatch(key marks.Key, former, next map[string]any) map[string]any {
	patch := map[string]any{}
	for k, v := range next {
		if !reflect.DeepEqual(former[k], v) {
			if m, ok := v.(map[string]any); ok && former[k] != nil {
				v = replaceMap(former[k], m)
			}
			patch[k] = v
		}
	}
	if key.Kind == "Service" || key.Kind == "Ingress" {
		return patch
	}
	for k := range former {
		if _, ok := next[k]; !ok {
			patch[k] = nil
		}
	}
	return patch
}

// replaceMap makes a merge patch that leaves nothing of the former map.
func replaceMap(former any, next map[string]any) map[string]any {
	out := maps.Clone(next)
	old, _ := former.(map[string]any)
	for k := range old {
		if _, ok := next[k]; !ok {
			out[k] = nil
		}
	}
	return out
}

// fillTimes gives the present time to conditions that nobody has dated.
func fillTimes(status map[string]any, now time.Time) {
	conds, _ := status["conditions"].([]any)
	stamp := now.UTC().Format(time.RFC3339)
	for _, c := range conds {
		if m, ok := c.(map[string]any); ok && m["lastTransitionTime"] == nil {
			m["lastTransitionTime"] = stamp
		}
	}
}

// urgency of a status write.
type urgency int

const (
	// whenDue is for what nobody waits for: messages, times, totals.
	whenDue urgency = iota
	// soon is for counters of readiness on the way.
	soon
	// atOnce is for edges: a condition turns, a generation is observed, a
	// counter reaches or leaves the total.
	atOnce
)

func (e *Engine) pause(u urgency) time.Duration {
	switch u {
	case atOnce:
		return 0
	case soon:
		return min(time.Second, e.cfg.StatusInterval)
	case whenDue:
	}
	return e.cfg.StatusInterval
}

func urgencyOf(former, next map[string]any) urgency {
	if !reflect.DeepEqual(former["observedGeneration"], next["observedGeneration"]) ||
		!reflect.DeepEqual(conditionStates(former), conditionStates(next)) || former == nil {
		return atOnce
	}
	u := whenDue
	for _, f := range []string{
		"readyReplicas", "availableReplicas", "updatedReplicas", "numberReady", "numberAvailable",
		"updatedNumberScheduled", "active", "succeeded", "failed", "phase", "loadBalancer", "currentHealthy", "currentRevision",
	} {
		if reflect.DeepEqual(former[f], next[f]) {
			continue
		}
		total := next["replicas"]
		if total == nil {
			total = next["desiredNumberScheduled"]
		}
		if _, isCount := next[f].(int64); !isCount || total == nil || reflect.DeepEqual(next[f], total) || reflect.DeepEqual(former[f], former["replicas"]) {
			return atOnce
		}
		u = soon
	}
	return u
}

// conditionStates are the parts of conditions that programs wait for.
func conditionStates(status map[string]any) map[string]string {
	out := map[string]string{}
	conds, _ := status["conditions"].([]any)
	for _, c := range conds {
		if m, ok := c.(map[string]any); ok {
			out[fmt.Sprint(m["type"])] = fmt.Sprint(m["status"], "/", m["reason"])
		}
	}
	return out
}

// writeConditions keeps Scheduled and FullyApplied of the binding, and tells
// when a generation is everywhere.
func (e *Engine) writeConditions(ctx context.Context, key marks.Key, t *template, d *decision, parts []aggregate.Part, problems map[string]string) error {
	b := e.bindings.get(key)
	if b == nil {
		return nil
	}
	scheduled := metav1.Condition{Type: workv1alpha2.ConditionScheduled, Status: metav1.ConditionTrue, Reason: "Success", Message: d.problem}
	switch {
	case d.problem != "" && d.reason != "" && d.reason != placement.ReasonPostponed:
		scheduled.Status, scheduled.Reason = metav1.ConditionFalse, d.reason
	case d.problem != "" && len(d.targets) == 0:
		scheduled.Status, scheduled.Reason = metav1.ConditionFalse, placement.ReasonNoCluster
	}
	full := metav1.Condition{Type: workv1alpha2.ConditionFullyApplied, Status: metav1.ConditionTrue, Reason: "FullyAppliedSuccess"}
	if len(problems) > 0 || len(parts) == 0 {
		full.Status, full.Reason, full.Message = metav1.ConditionFalse, "FullyAppliedFailed", describeProblems(problems)
	}
	status := b.Status.DeepCopy()
	scheduled.ObservedGeneration, full.ObservedGeneration = b.Generation, b.Generation
	changed := meta.SetStatusCondition(&status.Conditions, scheduled)
	changed = meta.SetStatusCondition(&status.Conditions, full) || changed
	changed = setRemarks(&status.Conditions, e.remarks(key, t, d), b.Generation) || changed
	changed = setInterpreted(&status.Conditions, e.troubles.list(key), b.Generation) || changed
	changed = e.showLimit(&status.Conditions, key, t, d.limit, b.Generation) || changed
	changed = setHeld(&status.Conditions, e.heldCondition(key, t), b.Generation) || changed
	if status.SchedulerObservedAffinityName != d.group {
		status.SchedulerObservedAffinityName, changed = d.group, true
	}
	if status.SchedulerObservedGeneration != b.Generation {
		status.SchedulerObservedGeneration, changed = b.Generation, true
	}
	if r := b.Spec.RescheduleTriggeredAt; status.LastScheduledTime == nil || r != nil && r.After(status.LastScheduledTime.Time) {
		status.LastScheduledTime, changed = new(metav1.Now()), true
	}
	if shown := showAggregated(status, parts, problems); !changed && !shown {
		return nil
	}
	if err := e.bindings.storeStatus(ctx, key, b, *status); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if full.Status == metav1.ConditionTrue && e.memo(key, t.UID).synced != max(t.Generation, 1) {
		e.setMemo(key, func(m *statusMemo) { m.uid, m.synced = t.UID, max(t.Generation, 1) })
		e.event(key, t, corev1.EventTypeNormal, reasonSynced, "In place in %s", strings.Join(slices.Sorted(maps.Keys(d.targets)), ", "))
	}
	return nil
}

// firstWrites is how long a new decision may take to reach the members before
// the delay is shown.
const firstWrites = 3 * time.Second

const notWritten = "not written yet"

// underWay: some copies have not been written, and nothing is wrong with them.
func underWay(parts []aggregate.Part, problems map[string]string) bool {
	return slices.ContainsFunc(parts, func(p aggregate.Part) bool { return problems[p.Cluster] == notWritten })
}

func describeProblems(problems map[string]string) string {
	out := make([]string, 0, len(problems))
	for _, cluster := range slices.Sorted(maps.Keys(problems)) {
		out = append(out, cluster+": "+problems[cluster])
	}
	return strings.Join(out, "; ")
}
