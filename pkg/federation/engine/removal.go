package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// consider decides, on evidence read live, whether a copy has to go, and does
// it.
func (m *member) consider(ctx context.Context, key marks.Key) error {
	ctx, cancel := context.WithTimeout(ctx, 2*m.engine.cfg.RequestTimeout)
	defer cancel()
	there, err := m.liveCopy(ctx, key)
	if err != nil {
		return err
	}
	t, tpl, err := m.engine.liveTemplate(ctx, key)
	if err != nil {
		return err
	}
	b, version, err := m.engine.bindings.live(ctx, key)
	if err != nil {
		return err
	}
	c := intent.Copy{}
	if there != nil {
		c = intent.Copy{Found: true, Ours: there.owned, Held: there.held, TemplateUID: there.templateUID}
	}
	verdict, why := intent.Judge(m.name, t, b, c)
	if sticky(key.GroupKind()) && t.Found && !t.Deleting {
		verdict = intent.Keep
	}
	removals.WithLabelValues(m.name, verdict.String()).Inc()
	klog.FromContext(ctx).V(1).Info("Judged a copy", "copy", key.String(), "verdict", verdict, "why", why)
	if verdict != intent.Keep {
		m.lifted(key)
		needed := revisionOf(version)
		if tpl != nil {
			needed = max(needed, revisionOf(tpl.GetResourceVersion()))
		}
		if err := m.permit(ctx, needed); err != nil {
			return err
		}
	}
	waits, err := m.withBreaker(ctx, key, t, there, &verdict)
	if err != nil || waits {
		return err
	}
	switch verdict {
	case intent.Delete, intent.Orphan:
		return m.remove(ctx, key, there, tpl, verdict == intent.Orphan)
	case intent.Release:
		return m.release(ctx, key, there)
	case intent.Keep:
		if c.Ours && (c.Held || t.Held) {
			m.showHeld(key, m.engine.template(key), errHeld, why)
			m.keepHeld(key, t.UID, b.DeletedTemplate)
			return nil
		}
		m.gone(key, t.UID, b.DeletedTemplate)
	}
	return nil
}

// withBreaker has the breaker confirm a deletion, or make a release of it, or
// wait.
func (m *member) withBreaker(ctx context.Context, key marks.Key, t intent.Template, there *copyRecord, verdict *intent.Verdict) (waits bool, err error) {
	if *verdict == intent.Delete || *verdict == intent.Orphan {
		answer, why, err := m.mayDelete(ctx, key, t, there)
		if err != nil {
			return false, err
		}
		switch answer {
		case breaker.Wait:
			m.waits(key, why)
			m.queue.AddAfter(key, askAgain)
			return true, nil
		case breaker.Release:
			*verdict = intent.Release
		case breaker.Go:
		}
	}
	m.waits(key, "")
	return false, nil
}

// gone records that nothing of ours is left to be removed here.
func (m *member) gone(key marks.Key, uid, recorded types.UID) {
	if uid == "" {
		uid = recorded
	}
	if uid == "" {
		m.forget(key)
		return
	}
	already := false
	m.change(key, func(a *applied) {
		already = a.gone == uid
		*a = applied{gone: uid}
	})
	if !already {
		m.engine.templateQueue.Add(key)
	}
}

func (m *member) liveCopy(ctx context.Context, key marks.Key) (*copyRecord, error) {
	res, err := m.resource(key)
	if err != nil {
		return nil, err
	}
	u, err := res.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("copy of %s in %s: %w", key, m.name, err)
	}
	return recordCopy(m.engine.id, key.GroupVersionKind, u)
}

// liveTemplate reads the evidence of the template past all caches.
func (e *Engine) liveTemplate(ctx context.Context, key marks.Key) (intent.Template, metav1.Object, error) {
	w := e.kindOf(key.GroupKind())
	if w == nil {
		return intent.Template{}, nil, fmt.Errorf("%w: kind %s", errStale, key.Kind)
	}
	u, err := e.client.Resource(w.gvr()).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return intent.Template{}, nil, nil
	}
	if err != nil {
		return intent.Template{}, nil, fmt.Errorf("template %s: %w", key, err)
	}
	f := u.GetFinalizers()
	return intent.Template{
		Found: true, UID: u.GetUID(), Deleting: u.GetDeletionTimestamp() != nil,
		Held:      u.GetAnnotations()[marks.Hold] != "",
		Finalizer: slices.Contains(f, marks.Finalizer), Orphan: e.orphaning.asked(key, u.GetUID(), f),
	}, u, nil
}

// remove deletes the very object that was judged.
func (m *member) remove(ctx context.Context, key marks.Key, there *copyRecord, tpl metav1.Object, orphan bool) error {
	if there.DeletionTimestamp != nil {
		return nil // under way; its end is an event
	}
	if key.GroupKind() == namespaceKind {
		if held := m.heldWithin(key.Name); held != "" {
			m.showHeld(key, m.engine.template(key), errHoldsHeld, held)
			m.keepHeld(key, tplUID(tpl), there.templateUID)
			return nil
		}
		foreign, err := m.foreignContents(ctx, key.Name)
		if err != nil {
			return err
		}
		if foreign != "" {
			klog.FromContext(ctx).Info("A namespace is left because it holds unmanaged objects", "namespace", key.Name, "example", foreign)
			if t := m.engine.template(key); t != nil {
				m.engine.event(key, t, corev1.EventTypeWarning, reasonNamespaceKept,
					"%s: the namespace stays because it holds %s, which nobody here has made", m.name, foreign)
			}
			if err := m.removeContents(ctx, key.Name); err != nil {
				return err
			}
			return m.release(ctx, key, there)
		}
	}
	if key.GroupKind() == crdKind {
		if kept, err := m.keepDefinition(ctx, key, there); kept || err != nil {
			return err
		}
	}
	policy := propagation(tpl, orphan && !sticky(key.GroupKind()))
	res, err := m.resource(key)
	if err != nil {
		return err
	}
	err = res.Delete(ctx, key.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the copy of %s in %s: %w", key, m.name, err)
	}
	klog.FromContext(ctx).Info("Deleted a copy", "copy", key.String())
	return errGoing // look again until it is gone
}

// propagation is what becomes of the dependents of a copy: what the client asked
// for those of the template.
func propagation(tpl metav1.Object, orphan bool) metav1.DeletionPropagation {
	switch {
	case orphan:
		return metav1.DeletePropagationOrphan
	case tpl != nil && slices.Contains(tpl.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

func tplUID(tpl metav1.Object) types.UID {
	if tpl == nil {
		return ""
	}
	return tpl.GetUID()
}

// release takes our marks off an object and gives up its fields, which stay as
// they are.
func (m *member) release(ctx context.Context, key marks.Key, there *copyRecord) error {
	res, err := m.resource(key)
	if err != nil {
		return err
	}
	u, err := res.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("release %s in %s: %w", key, m.name, err)
	}
	if u.GetUID() != there.UID {
		return errStale
	}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	for _, k := range []string{marks.Managed, marks.BindingID, marks.ClusterBindingID} {
		delete(labels, k)
	}
	for _, k := range []string{marks.ControlPlane, marks.Template, marks.TemplateUID, marks.TemplateRevision, marks.Epoch, marks.Revision} {
		delete(annotations, k)
	}
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	kept := slices.DeleteFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == marks.Manager || f.Manager == marks.ReplicasManager
	})
	if len(kept) == 0 {
		// No entry at all would mean "as it was"; an empty one clears the list.
		kept = []metav1.ManagedFieldsEntry{{}}
	}
	u.SetManagedFields(kept)
	if _, err := res.Update(ctx, u, metav1.UpdateOptions{FieldManager: "isthmus-release"}); err != nil {
		return fmt.Errorf("release %s in %s: %w", key, m.name, err)
	}
	m.queue.Add(key)
	return nil
}

// finalize lets a template go when the copies in all members that can be
// reached are gone; what is left elsewhere is recorded first.
func (e *Engine) finalize(ctx context.Context, key marks.Key, t *template, b *binding) error {
	if !t.finalized() {
		return e.letGo(ctx, key, t)
	}
	if t.onHold() {
		e.heldTemplate(key, t)
		return nil
	}
	if key.GroupKind() == namespaceKind {
		if s, err := t.shape(); err != nil || len(s.Spec.Finalizers) > 0 {
			return err // its contents come first
		}
	}
	e.useKind(ctx, key.GroupKind())
	recorded := map[string]bool{}
	if b != nil {
		for _, c := range b.Spec.Clusters {
			recorded[c.Name] = true
		}
	}
	var unreachable []string
	pending := map[string]string{}
	for _, m := range e.memberList() {
		switch {
		case m.record(key).gone == t.UID:
		case m.keepsHeld(key, t.UID):
			unreachable = append(unreachable, m.name) // until the hold is lifted
		case !recorded[m.name] && m.copy(key) == nil && m.filled(key.GroupKind()) == nil:
		case !m.info().Ready || m.client == nil:
			if recorded[m.name] || m.copy(key) != nil {
				unreachable = append(unreachable, m.name)
			}
		default:
			pending[m.name] = stillThere(m.copy(key), m.record(key))
			m.queue.Add(key)
		}
	}
	if len(pending) > 0 { // the members' workers come back with it
		return e.showPending(ctx, key, t, b, pending)
	}
	orphaned := e.orphaning.asked(key, t.UID, t.Finalizers)
	if orphaned && len(unreachable) == 0 {
		if err := e.dropRevisions(ctx, key, t.UID); err != nil {
			return err
		}
	}
	if err := e.settleBinding(ctx, key, t, b, unreachable, orphaned); err != nil {
		return err
	}
	return e.letGo(ctx, key, t)
}

// stillThere says why a copy of a template that is being deleted is not gone.
func stillThere(there *copyRecord, last applied) string {
	switch {
	case last.waits != "":
		return last.waits
	case there == nil || there.DeletionTimestamp == nil:
		return "the copy is not deleted yet"
	case len(there.Finalizers) == 0:
		return "the copy is being deleted"
	}
	return "the copy is being deleted and has the finalizers " + strings.Join(there.Finalizers, ", ")
}

// longDeletion is how long a deletion may take before the binding says what it
// waits for.
const longDeletion = 3 * time.Second

// showPending tells which members hold up a deletion.
func (e *Engine) showPending(ctx context.Context, key marks.Key, t *template, b *binding, pending map[string]string) error {
	if b == nil {
		return nil
	}
	if left := longDeletion - time.Since(t.DeletionTimestamp.Time); left > 0 {
		e.templateQueue.AddAfter(key, left)
		return nil
	}
	status := b.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: workv1alpha2.ConditionFullyApplied, Status: metav1.ConditionFalse, Reason: "Deleting",
		Message: describeProblems(pending), ObservedGeneration: b.Generation,
	}) {
		return nil
	}
	err := e.bindings.storeStatus(ctx, key, b, *status)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// letGo takes off the finalizers that are ours to take off. Nothing mounts a
// claim in the control plane; where Pods run, the members' own protection has
// held the copies, and so our finalizer.
func (e *Engine) letGo(ctx context.Context, key marks.Key, t *template) error {
	left := slices.DeleteFunc(slices.Clone(t.Finalizers), func(f string) bool {
		return f == marks.Finalizer || key.GroupKind() == claimKind && f == claimProtection
	})
	if len(left) == len(t.Finalizers) {
		return nil
	}
	_, err := e.patchFinalizers(ctx, key, t, left)
	return err
}

// claimProtection is set at creation by every API server.
const claimProtection = "kubernetes.io/pvc-protection"

// settleBinding removes the binding, or turns it into the record of what has
// still to go.
func (e *Engine) settleBinding(ctx context.Context, key marks.Key, t *template, b *binding, unreachable []string, orphaned bool) error {
	if b == nil {
		return nil
	}
	if len(unreachable) == 0 {
		return e.bindings.delete(ctx, key, b)
	}
	out := b.DeepCopy()
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, deletedTemplate, string(t.UID))
	if orphaned {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, orphanDependents, "true")
	}
	out.Spec.Clusters = nil
	for _, c := range unreachable {
		out.Spec.Clusters = append(out.Spec.Clusters, workv1alpha2.TargetCluster{Name: c})
	}
	_, err := e.bindings.store(ctx, key, out)
	return err
}

// finishRecorded removes what was left behind when its template was deleted.
func (e *Engine) finishRecorded(ctx context.Context, key marks.Key, b *binding) error {
	uid := types.UID(b.Annotations[deletedTemplate])
	e.useKind(ctx, key.GroupKind())
	var left []workv1alpha2.TargetCluster
	for _, c := range b.Spec.Clusters {
		m := e.member(c.Name)
		if m == nil || m.record(key).gone == uid {
			continue
		}
		left = append(left, c)
		if m.info().Ready && m.client != nil {
			m.queue.Add(key)
		}
	}
	if len(left) > 0 {
		return nil
	}
	if b.Annotations[orphanDependents] == "true" {
		if err := e.dropRevisions(ctx, key, uid); err != nil {
			return err
		}
	}
	return e.bindings.delete(ctx, key, b)
}
