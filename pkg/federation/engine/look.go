package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// templateGeneration, on what a script is shown of a copy, is the template's
// generation that the copy holds. Scripts read it; copies do not carry it.
const templateGeneration = "resourcetemplate.karmada.io/generation"

// look keeps of a copy what scripts will be asked about.
func (e *Engine) look(gvk schema.GroupVersionKind, u *unstructured.Unstructured, r *copyRecord) error {
	if e.scripted(gvk) {
		// Where a script cannot tell, spec.replicas is what is known.
		if n, _, err := e.interpreter.Replicas(context.Background(), gvk, u.Object); err == nil {
			r.replicas = n
		}
	}
	if !e.interpreter.Looks(gvk) {
		return nil
	}
	kept := u.DeepCopy()
	var ours []metav1.ManagedFieldsEntry
	for _, f := range kept.GetManagedFields() {
		if f.Manager == marks.Manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" {
			ours = append(ours, f)
		}
	}
	kept.SetManagedFields(ours)
	raw, err := json.Marshal(kept.Object)
	if err != nil {
		return fmt.Errorf("copy %s/%s: %w", r.Namespace, r.Name, err)
	}
	r.object = raw
	return nil
}

// interpreted is what was made of a copy, as long as nothing has changed.
type interpreted struct {
	version    string
	generation int64
	revision   uint64
	status     map[string]any
	health     string
}

// readStatus fills in what a copy reports: its status as scripts pick it, and
// whether it is healthy.
func (e *Engine) readStatus(key marks.Key, t *template, m *member, there *copyRecord, p *aggregate.Part) error {
	last := m.record(key)
	now := interpreted{version: there.ResourceVersion, generation: last.generation, revision: e.understanding.Load()}
	if was := last.interpreted; was != nil && was.version == now.version && was.generation == now.generation && was.revision == now.revision {
		p.Status, p.Health = was.status, was.health
		return nil
	}
	var err error
	if now.status, err = there.decodeStatus(); err != nil {
		return err
	}
	gvk := key.GroupVersionKind
	observed, err := there.decodeObject(last.generation)
	if err != nil {
		return err
	}
	ctx := context.Background()
	counts := interpreter.Counts{Generation: there.Generation, Replicas: there.replicas}
	now.health = interpreter.Unknown
	if observed != nil || !e.interpreter.Looks(gvk) {
		now.health, err = e.interpreter.Health(ctx, gvk, observed, now.status, counts)
		e.trouble(key, t, interpreter.InterpretHealth, m.name, err)
		if observed != nil && e.interpreter.Scripted(gvk, interpreter.ReflectStatus) {
			status, err := e.interpreter.Reflect(ctx, gvk, observed)
			e.trouble(key, t, interpreter.ReflectStatus, m.name, err)
			if err == nil {
				now.status = status
			} else if was := last.interpreted; was != nil {
				now.status = was.status
			}
		}
	}
	p.Status, p.Health = now.status, now.health
	if observed == nil && e.interpreter.Looks(gvk) {
		return nil // the whole copy is seen in a moment
	}
	m.change(key, func(a *applied) { a.interpreted = &now })
	return nil
}

// decodeObject is the copy as scripts see it; nil when it was not kept.
func (r *copyRecord) decodeObject(generation int64) (map[string]any, error) {
	if r == nil || r.object == nil {
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(r.object); err != nil {
		return nil, fmt.Errorf("copy %s/%s: %w", r.Namespace, r.Name, err)
	}
	u.SetManagedFields(nil)
	if generation > 0 {
		annotations := maps.Clone(u.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[templateGeneration] = fmt.Sprint(generation)
		u.SetAnnotations(annotations)
	}
	return u.Object, nil
}

// retained has scripts say what of a member's object stays as it is.
func (m *member) retained(ctx context.Context, key marks.Key, r *rendered, there *copyRecord) error {
	e, gvk := m.engine, key.GroupVersionKind
	if there == nil || !there.owned || !e.interpreter.Scripted(gvk, interpreter.Retain) {
		return nil
	}
	u := &unstructured.Unstructured{}
	if there.object != nil {
		if err := u.UnmarshalJSON(there.object); err != nil {
			return fmt.Errorf("copy %s: %w", key, err)
		}
	} else {
		res, err := m.resource(key)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
		defer cancel()
		if u, err = res.Get(ctx, key.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil // its end is an event
		} else if err != nil {
			return fmt.Errorf("copy %s: %w", key, err)
		}
	}
	ours := map[string]any{}
	if raw := claimsOf(marks.Manager, u.GetManagedFields()); raw != nil {
		if err := json.Unmarshal(raw, &ours); err != nil {
			return fmt.Errorf("claims of %s: %w", key, err)
		}
	}
	u.SetManagedFields(nil)
	kept, err := e.interpreter.RetainIn(ctx, gvk, r.object.Object, u.Object)
	if err != nil {
		return err
	}
	labels, annotations := r.object.GetLabels(), r.object.GetAnnotations()
	retain.Restore(kept, marked(labels), marked(annotations))
	r.object.Object = retain.Yield(r.object.Object, kept, u.Object, ours)
	// Of another state the script might have kept something else.
	r.version = u.GetResourceVersion()
	divided, replicas := r.divided, r.replicas
	if err := r.measure(divisible(gvk.GroupKind())); err != nil {
		return err
	}
	// Numbers of replicas have a manager of their own, whatever a script keeps.
	r.divided, r.replicas = divided, replicas
	return nil
}

// marked picks what identifies a copy.
func marked(set map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range set {
		if isMark(k) {
			out[k] = v
		}
	}
	return out
}

// rewatch fills the cache of a kind's copies anew, as other parts of them are
// kept now. The former one serves until that is done.
func (m *member) rewatch(ctx context.Context, k kind) {
	m.mu.RLock()
	former := m.watches[k.GroupKind()]
	m.mu.RUnlock()
	if former == nil {
		return
	}
	fresh, err := m.newWatch(k) //nolint:contextcheck // scripts are bounded by the sandbox
	if err != nil {
		klog.FromContext(ctx).Error(err, "Copies cannot be watched", "kind", k.Kind)
		return
	}
	m.wg.Go(func() { fresh.informer.Run(fresh.ctx.Done()) })
	m.wg.Go(func() {
		if !cacheFilled(fresh.ctx, fresh.informer) { //nolint:contextcheck // the watch's own
			return
		}
		m.mu.Lock()
		current := m.watches[k.GroupKind()]
		if current == former {
			m.watches[k.GroupKind()] = fresh
		}
		m.mu.Unlock()
		if current != former {
			// Another one was faster, and was asked for later or at once.
			fresh.stop()
			m.rewatch(ctx, k)
			return
		}
		former.stop()
		for _, key := range m.engine.templateKeys(func(w *kindWatch) bool { return w.GroupKind() == k.GroupKind() }) {
			m.queue.AddBacklog(key)
			m.engine.statusQueue.AddBacklog(key)
		}
	})
}

// guarded asks the breaker before a copy that a script counts shrinks; what has
// to wait stays in what is written.
func (m *member) guarded(ctx context.Context, key marks.Key, d *decision, r *rendered, there *copyRecord) error {
	if !d.divided || d.revise == nil || there == nil || !there.owned {
		return nil
	}
	want, _, err := m.engine.interpreter.Replicas(ctx, key.GroupVersionKind, r.object.Object)
	if err != nil {
		return err
	}
	granted, err := m.guardReplicas(ctx, key, d, want, there)
	if err != nil || granted == want {
		return err
	}
	if r.object.Object, err = d.revise(r.object.Object, granted); err != nil {
		return err
	}
	return r.measure(divisible(key.GroupKind()))
}

// errUninterpreted says that a script has failed, which is told already: the
// former copy goes on, and a change of template or customization tries again.
var errUninterpreted = errors.New("the copy cannot be interpreted")

// interpret has scripts change what is about to be written over a copy.
func (m *member) interpret(ctx context.Context, key marks.Key, t *template, d *decision, r *rendered, there *copyRecord) error {
	err := m.guarded(ctx, key, d, r, there)
	if err == nil {
		err = m.retained(ctx, key, r, there)
	}
	if err == nil {
		err = m.addVersions(ctx, key, r)
	}
	if failed := (*interpreter.Error)(nil); errors.As(err, &failed) {
		m.fail(key, t, err)
		return errUninterpreted
	}
	return err
}

// isMark says whether a label or annotation is one of the marks of a copy.
func isMark(key string) bool {
	return strings.HasPrefix(key, marks.Prefix) || key == marks.BindingID || key == marks.ClusterBindingID
}
