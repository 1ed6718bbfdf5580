package engine

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
)

// claimsReplicas says whether the manager of replicas claims them.
func claimsReplicas(entries []metav1.ManagedFieldsEntry) bool {
	raw := claimsOf(marks.ReplicasManager, entries)
	if raw == nil {
		return false
	}
	var fields struct {
		Spec map[string]any `json:"f:spec"`
	}
	if json.Unmarshal(raw, &fields) != nil {
		return false
	}
	_, ok := fields.Spec["f:replicas"]
	return ok
}

func (r *copyRecord) hands() replicas.Copy {
	return replicas.Copy{Exists: true, Present: r.replicas, Content: r.contentSays, Own: r.weSay}
}

// handOver has the manager of replicas claim what is there before the content,
// whose manager lets go of them, is written.
func (m *member) handOver(ctx context.Context, key marks.Key, t *template, there *copyRecord, v *view) (*copyRecord, error) {
	if step, n := replicas.Next(there.hands(), v.grant.Replicas, v.autoscaled, true); there.contentSays && step == replicas.Claim {
		return m.writeReplicas(ctx, key, t, there, there.ResourceVersion, n, v.basis)
	}
	return there, nil
}

// scale brings replicas to what is granted; those that somebody else has set
// are claimed first, ever more slowly if that goes on.
func (m *member) scale(ctx context.Context, key marks.Key, t *template, d *decision, there *copyRecord, v *view) error {
	if !v.autoscaled {
		var err error
		if v.grant.Replicas, err = m.guardReplicas(ctx, key, d, v.grant.Replicas, there); err != nil {
			return err
		}
	}
	step, n := replicas.Next(there.hands(), v.grant.Replicas, v.autoscaled, false)
	if step == replicas.Claim {
		if wait := m.drifted(key, t); wait > 0 {
			m.fail(key, t, fmt.Errorf("%w: spec.replicas", errContested))
			m.queue.AddAfter(key, wait)
			return nil
		}
		got, err := m.writeReplicas(ctx, key, t, there, there.ResourceVersion, n, v.basis)
		if err != nil {
			return err
		}
		there = got
		step, n = replicas.Next(there.hands(), v.grant.Replicas, v.autoscaled, false)
	}
	if step == replicas.Scale {
		_, err := m.writeReplicas(ctx, key, t, there, "", n, v.basis)
		return err
	}
	m.change(key, func(a *applied) { a.replicas = nil })
	return nil
}

// writeReplicas says the number of replicas, and nothing else. With a version
// it is a claim of what is there: if the copy has changed meanwhile, the caller
// has to look again.
func (m *member) writeReplicas(ctx context.Context, key marks.Key, t *template, there *copyRecord, version string, n int32, needed uint64) (*copyRecord, error) {
	if err := m.permit(ctx, needed); err != nil {
		return nil, m.failed(ctx, key, t, err)
	}
	meta := map[string]any{"name": key.Name, "namespace": key.Namespace, "uid": there.UID}
	if version != "" {
		meta["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": key.GroupVersion().String(), "kind": key.Kind, "metadata": meta, "spec": map[string]any{"replicas": n},
	})
	if err != nil {
		return nil, fmt.Errorf("replicas of %s: %w", key, err)
	}
	res, err := m.resource(key)
	if err != nil {
		return nil, err
	}
	reqCtx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	m.change(key, func(a *applied) { a.replicas = &n })
	u, err := res.Patch(reqCtx, key.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: marks.ReplicasManager, Force: new(true)})
	if err != nil {
		applies.WithLabelValues(m.name, outcome(err)).Inc()
		if definite(err) {
			m.change(key, func(a *applied) { a.replicas = nil })
		}
		return nil, m.failed(ctx, key, t, err)
	}
	applies.WithLabelValues(m.name, "replicas").Inc()
	got, err := recordCopy(m.engine.id, key.GroupVersionKind, u)
	if err != nil {
		return nil, err
	}
	m.answered(key, there, got)
	m.change(key, func(a *applied) { a.replicas = nil })
	return got, nil
}

// definite: the member has surely not done what was asked.
func definite(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err)
}

// answered keeps a member's answer to a write until the watch has caught up.
func (m *member) answered(key marks.Key, before, got *copyRecord) {
	m.change(key, func(a *applied) {
		a.unreported = a.unreported.then(before, got)
		a.latest = got
		if newer(got.ResourceVersion, a.version) || a.uid != got.UID {
			a.version, a.copyGen = got.ResourceVersion, got.Generation
		}
	})
}

// overtaken: the copy is gone, whatever was written to it.
func (m *member) overtaken(key marks.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.applied[key]; a != nil {
		a.latest, a.replicas, a.rolling, a.unreported = nil, nil, nil, nil
	}
}

// newest is the copy as last seen or answered, and what is known of writes to
// it at the same moment.
func (m *member) newest(key marks.Key) (*copyRecord, applied) {
	store := m.copies(key.GroupKind())
	m.mu.Lock()
	defer m.mu.Unlock()
	there := copyIn(store, key)
	a := m.applied[key]
	if a == nil {
		return there, applied{}
	}
	switch {
	case a.latest == nil:
	case there != nil && (there.UID != a.latest.UID || !newer(a.latest.ResourceVersion, there.ResourceVersion)),
		there == nil && a.gone != "":
		a.latest = nil
	default:
		there = a.latest
	}
	return there, *a
}

// applyInTurn writes what the arbiter grants of a copy with replicas. content
// says that there is something to write; contested that there is, but not now.
func (m *member) applyInTurn(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered, there *copyRecord, content, contested bool) error {
	m.noteUnsure(key)
	if content {
		if err := m.permit(ctx, d.evidence(t)); err != nil {
			return m.failed(ctx, key, t, err)
		}
	}
	d.keepOutline(m.name, r)
	v, err := m.askArbiter(key, t, d, content)
	if v == nil {
		return err
	}
	turn := there != nil && content && !v.grant.Template
	m.change(key, func(a *applied) {
		a.turn, a.pends = turn, turn || !v.autoscaled && v.grant.Replicas != r.replicas
		if !content {
			a.rolling = nil
		}
	})
	switch {
	case content && !turn:
		ours := there == nil || there.owned
		if there != nil {
			if there, err = m.handOver(ctx, key, t, there, v); err != nil {
				return err
			}
		}
		before := there
		if before == nil {
			m.change(key, func(a *applied) { a.replicas = &v.grant.Replicas })
		}
		if there, err = m.write(ctx, key, t, r, before, v.grant.Replicas); err != nil {
			return err
		}
		m.answered(key, before, there)
		m.change(key, func(a *applied) { a.replicas, a.rolling = nil, nil })
		if !ours {
			return nil // only now the arbiter sees what it runs
		}
	case turn:
		m.change(key, func(a *applied) { a.problem = "" })
	case !contested:
		m.done(key, t, r.hash, there)
	}
	return m.scale(ctx, key, t, d, there, v)
}

// askArbiter asks what this cluster may do now, and again when there is a reason
// to. There is no view after an error, and while it is not known what runs
// elsewhere.
func (m *member) askArbiter(key marks.Key, t *template, d *decision, content bool) (*view, error) {
	v, err := m.engine.arbitrate(key, t, d, m.name, content)
	if err != nil {
		return nil, err
	}
	if v.retry > 0 {
		m.queue.AddAfter(key, v.retry)
	}
	if v.unknown {
		return nil, nil
	}
	return v, nil
}

// leave takes a workload out of a cluster that the placement leaves out: its
// replicas as the others can spare them, then the copy.
func (m *member) leave(ctx context.Context, key marks.Key, t *template, d *decision) error {
	if done, err := m.leaveEvicted(ctx, key, d); done || err != nil {
		return err
	}
	there, _ := m.newest(key)
	if !divisible(key.GroupKind()) || there == nil || !there.owned || there.held || there.DeletionTimestamp != nil || len(d.targets) == 0 {
		return m.consider(ctx, key)
	}
	v, err := m.askArbiter(key, t, d, false)
	if v == nil {
		return err
	}
	if v.grant.Replicas <= 0 {
		return m.consider(ctx, key)
	}
	m.change(key, func(a *applied) { a.pends = true })
	return m.scale(ctx, key, t, d, there, v)
}
