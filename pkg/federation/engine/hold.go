package engine

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/drift"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// onHold: an operator has asked the engine to leave the template alone.
func (t *template) onHold() bool { return t.Annotations[marks.Hold] != "" }

// hold writes nothing and says what is different because of that.
func (m *member) hold(ctx context.Context, key marks.Key, t *template, d *decision, why error) error {
	said, err := m.heldDrift(ctx, key, t, d)
	if err != nil {
		return err
	}
	m.showHeld(key, t, why, said)
	return nil
}

// heldDrift compares what would be written with what is there.
func (m *member) heldDrift(ctx context.Context, key marks.Key, t *template, d *decision) (string, error) {
	if _, ok := d.targets[m.name]; !ok {
		return "the placement leaves the cluster out", nil
	}
	cluster := m.cluster()
	r, err := render(m.engine.id, m.engine.fence.epoch.Load(), key, t, d, &cluster)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // told to the user: nothing can be written anyway
	}
	if err := m.fit(ctx, key, t, r); err != nil {
		return "", err
	}
	if err := r.conform(t, m.copy(key)); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if err := m.retained(ctx, key, r, m.copy(key)); err != nil {
		return err.Error(), nil //nolint:nilerr // as above
	}
	// Replicas that an autoscaler sets are nobody's drift.
	counted := r.divided && len(m.engine.scalers(key, m)) == 0
	if there := m.copy(key); there != nil && there.projection == r.hash && (!counted || there.replicas == r.replicas) {
		return "", nil
	}
	if counted {
		if err := unstructured.SetNestedField(r.object.Object, int64(r.replicas), "spec", "replicas"); err != nil {
			return "", fmt.Errorf("replicas of %s: %w", key, err)
		}
	}
	res, err := m.resource(key)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := res.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "there is no copy", nil
	}
	if err != nil {
		return "", fmt.Errorf("held copy of %s in %s: %w", key, m.name, err)
	}
	differences := drift.Between(r.object.Object, u.Object)
	if key.GroupKind() == secretKind {
		differences = drift.Redact(differences)
	}
	return drift.Describe(differences), nil
}

// showHeld records a hold and tells it once, and again when the drift is
// another.
func (m *member) showHeld(key marks.Key, t *template, why error, drift string) {
	problem := why.Error()
	if drift != "" {
		problem += ": " + drift
	}
	var was string
	m.change(key, func(a *applied) {
		was = a.problem
		a.held, a.problem = problem, problem
	})
	if was == problem || t == nil {
		return
	}
	m.engine.statusQueue.Add(key)
	m.engine.event(key, t, corev1.EventTypeWarning, reasonHeld, "%s: %s", m.name, problem)
}

// keepHeld leaves a copy that would have to go. A template that is deleted does
// not wait for it: what is left is recorded.
func (m *member) keepHeld(key marks.Key, uid, recorded types.UID) {
	if uid == "" {
		uid = recorded
	}
	already := false
	m.change(key, func(a *applied) {
		already = a.keeps == uid
		a.keeps = uid
	})
	if uid != "" && !already {
		m.engine.templateQueue.Add(key)
	}
}

// lifted forgets a hold.
func (m *member) lifted(key marks.Key) {
	if m.record(key).held == "" && m.record(key).keeps == "" {
		return
	}
	m.change(key, func(a *applied) { a.held, a.keeps, a.problem = "", "", "" })
	m.engine.statusQueue.Add(key)
}

// keepsHeld says whether the member keeps a held copy of a deleted template.
func (m *member) keepsHeld(key marks.Key, uid types.UID) bool {
	c := m.copy(key)
	return c != nil && c.owned && c.held || m.record(key).keeps == uid && uid != ""
}

// heldWithin names a held copy in a namespace; "" when there is none.
func (m *member) heldWithin(namespace string) string {
	m.mu.RLock()
	watches := maps.Clone(m.watches)
	m.mu.RUnlock()
	for gk, w := range watches {
		copies, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			continue // a kind without namespaces
		}
		for _, obj := range copies {
			if c, ok := obj.(*copyRecord); ok && c.owned && c.held {
				return gk.Kind + "/" + c.Name
			}
		}
	}
	return ""
}

// holdFlipped has what waited for a held copy looked at again: its namespace.
func (m *member) holdFlipped(key marks.Key) {
	if key.Namespace == "" {
		return
	}
	ns := marks.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(namespaceKind.Kind), Name: key.Namespace}
	if c := m.copy(ns); c != nil && c.owned {
		m.queue.Add(ns)
	}
}

// heldCondition says which copies are on hold, and what differs; nil when none
// is.
func (e *Engine) heldCondition(key marks.Key, t *template) *metav1.Condition {
	said := map[string]string{}
	for _, m := range e.memberList() {
		if held := m.record(key).held; held != "" {
			said[m.name] = held
		}
	}
	if len(said) == 0 && !t.onHold() {
		return nil
	}
	c := &metav1.Condition{Type: workv1alpha2.ConditionHeld, Status: metav1.ConditionTrue, Reason: "CopyOnHold", Message: describeProblems(said)}
	if t.onHold() {
		c.Reason = "TemplateOnHold"
	}
	return c
}

// setHeld puts the condition among the others, or takes it away.
func setHeld(conditions *[]metav1.Condition, held *metav1.Condition, generation int64) (changed bool) {
	if held == nil {
		return meta.RemoveStatusCondition(conditions, workv1alpha2.ConditionHeld)
	}
	held.ObservedGeneration = generation
	return meta.SetStatusCondition(conditions, *held)
}

// countHeld is for the metric.
func (m *member) countHeld() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := 0
	for _, a := range m.applied {
		if a.held != "" || a.keeps != "" {
			n++
		}
	}
	return n
}

// heldTemplate tells that a deletion waits.
func (e *Engine) heldTemplate(key marks.Key, t *template) {
	e.event(key, t, corev1.EventTypeWarning, reasonHeld, "The deletion waits until the annotation %s is taken off", marks.Hold)
}
