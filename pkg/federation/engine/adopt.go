package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// adoptionManager writes nothing but ownership.
const adoptionManager = "isthmus-adopt"

// adoptAgain is when a refused object is looked at again: what stood in the way
// may have been changed in the member.
const adoptAgain = 30 * time.Second

// takeOver makes an object that is not managed ready for its first apply: a dry
// run shows what the apply would do, and only if it replaces no Pods the fields
// that the template speaks of become ours. The apply that follows must find the
// object as it was judged. Nothing is returned for an object that is left alone.
func (m *member) takeOver(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered, u *unstructured.Unstructured, there *copyRecord) (*copyRecord, error) {
	switch other, foreign := adopt.Foreign(m.engine.id, key, u); {
	case foreign:
		return m.refuse(key, t, fmt.Errorf("%w: the object is managed by the control plane %s: release it there first", adopt.ErrRefused, other))
	case there.held:
		m.queue.AddAfter(key, adoptAgain)
		return errForeign, m.hold(ctx, key, t, d, errHeld)
	case there.DeletionTimestamp != nil:
		return m.refuse(key, t, errBeingDeleted)
	}
	r.object.SetResourceVersion(u.GetResourceVersion())
	answer, err := m.dryRun(ctx, key, r, u.GetUID())
	switch {
	case err == nil:
		err = adopt.Judge(u, answer)
	case isVerdict(err):
		err = fmt.Errorf("%w: the member would not accept it: %w", adopt.ErrRefused, err)
	default:
		return errForeign, m.failed(ctx, key, t, err)
	}
	if err != nil {
		return m.refuse(key, t, err)
	}
	if err := m.permit(ctx, d.evidence(t)); err != nil {
		return errForeign, m.failed(ctx, key, t, err)
	}
	version, err := m.moveOwnership(ctx, key, u, answer)
	if err != nil {
		return errForeign, m.failed(ctx, key, t, err)
	}
	r.object.SetResourceVersion(version)
	m.change(key, func(a *applied) { a.adopted = true })
	klog.FromContext(ctx).Info("Took over an object", "object", key.String(), "uid", u.GetUID())
	m.engine.event(key, t, corev1.EventTypeNormal, reasonAdopted, "%s: the object that was there is managed from now on", m.name)
	return there, nil
}

// isVerdict: the member understood the request and will refuse it again.
func isVerdict(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// refuse leaves the object alone and says why.
func (m *member) refuse(key marks.Key, t *template, why error) (*copyRecord, error) {
	if errors.Is(why, adopt.ErrRefused) {
		m.change(key, func(a *applied) { a.refused = why.Error() })
	}
	m.fail(key, t, why)
	m.queue.AddAfter(key, adoptAgain)
	return errForeign, nil
}

func (m *member) dryRun(ctx context.Context, key marks.Key, r *rendered, uid types.UID) (*unstructured.Unstructured, error) {
	body, err := r.body(uid, r.replicas)
	if err != nil {
		return nil, err
	}
	res, err := m.resource(key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	return res.Patch(ctx, key.Name, types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: marks.Manager, Force: new(true), DryRun: []string{metav1.DryRunAll},
	})
}

var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}

// moveOwnership writes who owns what, and returns the resourceVersion after it.
func (m *member) moveOwnership(ctx context.Context, key marks.Key, u, answer *unstructured.Unstructured) (string, error) {
	ours, ok := adopt.Answer(answer.GetManagedFields())
	if !ok {
		return u.GetResourceVersion(), nil
	}
	entries, moved, err := adopt.Move(u.GetManagedFields(), ours)
	if err != nil {
		return "", err
	}
	patch := map[string]any{}
	if moved {
		patch["managedFields"] = entries
	}
	body := map[string]any{}
	if _, found, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "ttlSecondsAfterFinished"); err == nil && found && key.GroupKind() == jobKind {
		// A Job that the member removes on its own would be created, and run, again.
		body["spec"] = map[string]any{"ttlSecondsAfterFinished": nil}
	}
	if len(patch) == 0 && len(body) == 0 {
		return u.GetResourceVersion(), nil
	}
	patch["uid"], patch["resourceVersion"] = u.GetUID(), u.GetResourceVersion()
	body["metadata"] = patch
	raw, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("ownership of %s: %w", key, err)
	}
	res, err := m.resource(key)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	got, err := res.Patch(ctx, key.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: adoptionManager})
	if err != nil {
		return "", fmt.Errorf("ownership of %s: %w", key, err)
	}
	return got.GetResourceVersion(), nil
}

// tellDropped records which fields the member does not know, and tells it once.
func (m *member) tellDropped(key marks.Key, t *template, fields string) {
	told := false
	m.change(key, func(a *applied) {
		told = a.dropped == fields
		a.dropped = fields
	})
	if told {
		return
	}
	m.engine.statusQueue.Add(key)
	if fields != "" {
		m.engine.event(key, t, corev1.EventTypeWarning, reasonDropped, "%s: fields that the cluster does not know are left out: %s", m.name, fields)
	}
}
