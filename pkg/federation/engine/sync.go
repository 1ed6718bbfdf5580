package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// sync brings one copy in line with what was decided.
func (m *member) sync(ctx context.Context, key marks.Key) error {
	if !m.info().Ready {
		return nil // everything is queued again when it comes back
	}
	if err := m.filled(key.GroupKind()); err != nil {
		notServed := errors.Is(err, errNotServed)
		if t := m.engine.template(key); notServed && t != nil && t.DeletionTimestamp != nil {
			// A member that does not serve the kind must not hold the template
			// forever, nor the namespace around it; a live read decides.
			return m.consider(ctx, key)
		}
		m.queue.AddAfter(key, 500*time.Millisecond)
		if notServed {
			m.report(key, m.engine.template(key), m.notServed(key, err), true)
		}
		return nil
	}
	t := m.engine.template(key)
	if t == nil || t.DeletionTimestamp != nil {
		return m.consider(ctx, key)
	}
	d := m.engine.decisionOf(key)
	if d == nil || d.uid != t.UID || d.content != t.content {
		return nil // the template's worker comes first, and queues this again
	}
	if t.onHold() {
		return m.hold(ctx, key, t, d, errTemplateHeld)
	}
	if _, ok := d.targets[m.name]; !ok {
		if m.copy(key) == nil {
			m.forget(key)
			return nil
		}
		return m.leave(ctx, key, t, d)
	}
	if !t.finalized() || d.isSuspended(m.name) {
		return nil
	}
	err := m.apply(ctx, key, t, d)
	m.engine.statusQueue.AddAs(key, m.queue.Level(key))
	if errors.Is(err, errUninterpreted) {
		return nil
	}
	return err
}

// apply writes the copy unless it already is what it should be.
func (m *member) apply(ctx context.Context, key marks.Key, t *template, d *decision) error {
	cluster := m.cluster()
	in := m.inputsOf(key, t, d, &cluster)
	if r, there := m.unchanged(key, in); r != nil {
		return m.confirm(ctx, key, t, d, r, there)
	}
	renders.WithLabelValues(m.name).Inc()
	r, err := render(m.engine.id, m.engine.fence.epoch.Load(), key, t, d, &cluster)
	if err != nil {
		// The former copy goes on; a change of template or policy tries again.
		m.fail(key, t, err)
		return nil
	}
	if err := m.fit(ctx, key, t, r); err != nil {
		return err
	}
	if err := r.measure(divisible(key.GroupKind())); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	there := m.copy(key)
	if there == nil || !there.held {
		m.lifted(key)
	}
	if r.divided {
		there, _ = m.newest(key)
	}
	if there == nil || !there.owned {
		if refused, err := m.refuses(ctx, key, t, r); err != nil || refused {
			return err
		}
		// The watch may be behind our own write as well.
		if there, err = m.examine(ctx, key, t, d, r); err != nil || there == errForeign {
			return err
		}
	}
	content, contested := true, false
	if there != nil && there.owned {
		var stop bool
		if content, contested, stop, err = m.own(ctx, key, t, d, r, there); stop || err != nil {
			return err
		}
	}
	m.remember(key, in, r)
	if r.divided {
		return m.applyInTurn(ctx, key, t, d, r, there, content, contested)
	}
	if contested {
		return nil
	}
	if !content {
		m.done(key, t, r.hash, there)
		return nil
	}
	if err := m.permit(ctx, d.evidence(t)); err != nil {
		return m.failed(ctx, key, t, err)
	}
	if d.quota != nil && there != nil {
		r.version = there.ResourceVersion // no earlier word comes later
	}
	_, err = m.write(ctx, key, t, r, there, 0)
	return err
}

// confirm does what is left where the content is there: replicas follow.
func (m *member) confirm(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered, there *copyRecord) error {
	recalled.WithLabelValues(m.name).Inc()
	skipped.WithLabelValues(m.name).Inc()
	m.lifted(key)
	if r.divided {
		return m.applyInTurn(ctx, key, t, d, r, there, false, false)
	}
	m.done(key, t, r.hash, there)
	return nil
}

// own looks at a copy of ours: whether there is something to say, and whether
// there is but it may not be said now. With stop it is left alone.
func (m *member) own(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered, there *copyRecord) (content, contested, stop bool, err error) {
	switch {
	case there.held:
		return false, false, true, m.hold(ctx, key, t, d, errHeld)
	case there.DeletionTimestamp != nil:
		m.fail(key, t, errBeingDeleted)
		return false, false, true, nil // its end is an event
	}
	if err := r.conform(t, there); err != nil {
		return false, false, true, fmt.Errorf("%s: %w", key, err)
	}
	if err := m.interpret(ctx, key, t, d, r, there); err != nil {
		return false, false, true, err
	}
	content, wait := m.contentDue(key, t, r, there)
	if wait > 0 {
		m.contested(ctx, key, t, r)
		m.queue.AddAfter(key, wait)
		return false, true, false, nil
	}
	if content {
		contested, err = m.refuses(ctx, key, t, r)
	}
	return content && !contested, contested, false, err
}

// contentDue says whether there is anything to write but replicas; with a
// wait, when somebody else has changed it too often.
func (m *member) contentDue(key marks.Key, t *template, r *rendered, there *copyRecord) (due bool, wait time.Duration) {
	last := m.record(key)
	switch {
	case upToDate(last, there, r.hash):
		skipped.WithLabelValues(m.name).Inc()
		return false, 0
	case last.hash == r.hash && last.claims != 0 && last.claims != there.claims && last.uid == there.UID:
		return true, m.drifted(key, t)
	}
	return true, 0
}

// upToDate: nothing to say, and nobody has contradicted.
func upToDate(last applied, there *copyRecord, hash uint64) bool {
	if last.hash == hash && last.uid == there.UID {
		// The watch may be behind our own write.
		return last.claims == there.claims || newer(last.version, there.ResourceVersion)
	}
	// After a restart nothing is known of the last write: compare values.
	return last.hash == 0 && there.projection == hash
}

// errForeign stands for an object that must be left alone.
var errForeign = &copyRecord{}

// examine looks past the cache, which holds managed copies only, for an object
// of the same name that is not ours.
func (m *member) examine(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered) (*copyRecord, error) {
	res, err := m.resource(key)
	if err != nil {
		return nil, err
	}
	getCtx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := res.Get(getCtx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, m.failed(ctx, key, t, err)
	}
	there, err := recordCopy(m.engine.id, key.GroupVersionKind, u)
	if err != nil {
		return nil, err
	}
	if err := r.conform(t, there); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if !there.owned && !d.overwrite {
		if key.GroupKind() == namespaceKind {
			// A namespace that exists is good to use; it is not ours to manage.
			m.change(key, func(a *applied) { a.template, a.generation, a.problem = t.UID, t.Generation, "" })
		} else {
			m.fail(key, t, errUnmanaged)
		}
		m.queue.AddAfter(key, 30*time.Second)
		return errForeign, nil
	}
	if !there.owned {
		return m.takeOver(ctx, key, t, d, r, u, there)
	}
	return there, nil
}

// write says the content, and of a copy that is not there the replicas.
func (m *member) write(ctx context.Context, key marks.Key, t *template, r *rendered, there *copyRecord, replicas int32) (*copyRecord, error) {
	var uid types.UID
	if there != nil {
		uid = there.UID
	}
	body, err := r.body(uid, replicas)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	res, err := m.resource(key)
	if err != nil {
		return nil, err
	}
	reqCtx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := res.Patch(reqCtx, key.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: marks.Manager, Force: new(true)})
	if err != nil {
		if unknownField(err) && m.schemas != nil {
			m.schemas.outdated(reqCtx)
		}
		applies.WithLabelValues(m.name, outcome(err)).Inc()
		if definite(err) {
			m.change(key, func(a *applied) { a.replicas, a.rolling = nil, nil })
		}
		return nil, m.failed(ctx, key, t, err)
	}
	applies.WithLabelValues(m.name, "written").Inc()
	got, err := recordCopy(m.engine.id, key.GroupVersionKind, u)
	if err != nil {
		return nil, err
	}
	m.done(key, t, r.hash, got)
	return got, nil
}

// done records that the copy is what it should be.
func (m *member) done(key marks.Key, t *template, hash uint64, got *copyRecord) {
	m.change(key, func(a *applied) {
		if a.version == "" || a.uid != got.UID || !newer(a.version, got.ResourceVersion) {
			a.claims, a.version, a.copyGen = got.claims, got.ResourceVersion, got.Generation
		}
		a.hash, a.uid = hash, got.UID
		a.template, a.generation, a.problem, a.gone = t.UID, t.Generation, "", ""
		a.refused = ""
	})
}

func outcome(err error) string {
	if r := apierrors.ReasonForError(err); r != metav1.StatusReasonUnknown {
		return string(r)
	}
	return "unreachable"
}

// failed sorts out what an error of the member asks for.
func (m *member) failed(ctx context.Context, key marks.Key, t *template, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case namespaceMissing(key, err):
		m.report(key, t, errNamespaceMissing.Error(), true)
		if m.engine.needs.needNamespace(key.Namespace, m.name) {
			m.engine.templateQueue.Add(marks.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Name: key.Namespace})
		}
		return errNamespaceMissing
	case apierrors.IsConflict(err):
		return err // the copy was replaced; the watch knows soon
	}
	m.fail(key, t, err)
	return err
}

func namespaceMissing(key marks.Key, err error) bool {
	if key.Namespace == "" || !apierrors.IsNotFound(err) {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// fail records a problem with a copy and tells it once.
func (m *member) fail(key marks.Key, t *template, err error) { m.report(key, t, err.Error(), false) }

func (m *member) report(key marks.Key, t *template, problem string, quiet bool) {
	told := false
	m.change(key, func(a *applied) {
		told = a.problem == problem
		a.problem = problem
	})
	if told || quiet || t == nil {
		return
	}
	m.engine.statusQueue.Add(key)
	reason := reasonSyncFailed
	switch {
	case strings.HasPrefix(problem, errOverride.Error()):
		reason = reasonOverrideFailed
	case strings.HasPrefix(problem, errNotAdmitted.Error()):
		reason = reasonNotAdmitted
	case problem == errUnmanaged.Error():
		reason = reasonConflict
	case strings.HasPrefix(problem, adopt.ErrRefused.Error()):
		reason = reasonAdoptionRefused
	}
	m.engine.event(key, t, corev1.EventTypeWarning, reason, "%s: %s", m.name, problem)
}

// drifted counts corrections: the first few are made at once, then ever more
// slowly, so that the engine does not fight with another controller.
func (m *member) drifted(key marks.Key, t *template) (wait time.Duration) {
	const free, window, longest = 3, 2 * time.Minute, 5 * time.Minute
	drifts.WithLabelValues(m.name).Inc()
	now := time.Now()
	var n int
	m.change(key, func(a *applied) {
		pause := backoff(a.drifts-free, longest)
		if since := now.Sub(a.driftAt); a.drifts >= free && since < pause {
			wait = pause - since
			return
		} else if since > window+pause {
			a.drifts = 0
		}
		a.drifts++
		a.driftAt = now
		n = a.drifts
	})
	if wait > 0 {
		return wait
	}
	if n <= free {
		m.engine.event(key, t, corev1.EventTypeNormal, reasonDrift, "%s: a change made in the member is corrected", m.name)
	}
	return 0
}

func backoff(n int, longest time.Duration) time.Duration {
	if n < 0 {
		return 0
	}
	return min(5*time.Second<<min(n, 10), longest)
}
