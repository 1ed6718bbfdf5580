package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

type policyUID = types.UID

// claimOf is the policy that a binding says it follows.
func claimOf(b *binding) policyUID {
	if b == nil {
		return ""
	}
	return claimIn(b.Labels)
}

func claimIn(labels map[string]string) policyUID {
	for _, l := range marks.ClaimLabels {
		if v := labels[l]; v != "" {
			return policyUID(v)
		}
	}
	return ""
}

// speaks: a default policy does not follow upon another one that was deleted.
// What that has placed stays where it is.
func speaks(index *placement.Index, policy *placement.Policy, b *binding) bool {
	if !policy.Default || b == nil || b.Spec.Placement == nil {
		return true
	}
	former, ok := index.Policy(claimOf(b))
	return ok && former.Default
}

func bindingLabel(key marks.Key) string {
	if key.Namespace == "" {
		return marks.ClusterBindingID
	}
	return marks.BindingID
}

// record writes the binding when it says something new.
func (e *Engine) record(ctx context.Context, key marks.Key, t *template, b *binding, want *workv1alpha2.ResourceBindingSpec, d *decision) (*binding, error) {
	out := &binding{}
	if b != nil {
		out = b.DeepCopy()
		want.RescheduleTriggeredAt = b.Spec.RescheduleTriggeredAt
	} else {
		out.Namespace = key.Namespace
	}
	metav1.SetMetaDataLabel(&out.ObjectMeta, bindingLabel(key), permanentID(out, key))
	claim(out, t, d.follows)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, decidedAnnotation, "true")
	delete(out.Annotations, deletedTemplate)
	delete(out.Annotations, orphanDependents)
	out.Spec = *want
	if err := errors.Join(e.noteMove(out, b, d), noteQuota(out, d, time.Now()), noteLeft(out, d)); err != nil {
		return nil, err
	}
	if b != nil && equality.Semantic.DeepEqual(b.Spec, out.Spec) &&
		equality.Semantic.DeepEqual(b.Labels, out.Labels) && equality.Semantic.DeepEqual(b.Annotations, out.Annotations) {
		return b, nil
	}
	moved := b == nil || !equality.Semantic.DeepEqual(b.Spec.Clusters, out.Spec.Clusters)
	stored, err := e.bindings.store(ctx, key, out)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", errStale, err)
	case err != nil:
		return nil, err
	}
	e.tellEvictions(key, t, d)
	if moved {
		e.enqueueTargets(e.needs.needsOf(key))
		e.enqueueScalers(key)
		e.enqueueBudgets(key)
		e.enqueueQuotas(key)
		e.enqueueDefined(key)
		if d.problem != "" && len(d.targets) == 0 {
			e.event(key, t, corev1.EventTypeWarning, reasonScheduleFailed, "%s", d.problem)
		} else {
			e.event(key, t, corev1.EventTypeNormal, reasonScheduled, "Placed in %s%s", describeTargets(want.Clusters, d.divided), byPolicy(d.follows.policy))
		}
		if n := len(want.Clusters); n > 1 && key.GroupKind() == cronJobKind {
			e.event(key, t, corev1.EventTypeWarning, reasonRepeated, "Every one of %d clusters runs these Jobs: each run happens %d times", n, n)
		}
	}
	return stored, nil
}

// byPolicy names the policy that has spoken.
func byPolicy(p *placement.Policy) string {
	switch {
	case p == nil:
		return ""
	case p.Namespace == "":
		return " by ClusterPropagationPolicy " + p.Name
	}
	return " by PropagationPolicy " + p.Name
}

// placementMove, on a binding, is how the placement of a divided workload came
// about. So a change that is taken back is known as such after a restart as well.
const placementMove = "isthmus.dev/placement-move"

// move is the last change of a placement.
type move struct {
	// Base is the placement that had stood before the changes of late, From the
	// one before the present one, and Since is when that was decided.
	Base  map[string]int32 `json:"base,omitempty"`
	From  map[string]int32 `json:"from,omitempty"`
	Since time.Time        `json:"since"`
}

// nearer says whether a placement is nearer to the base than the one before it.
func (m move) nearer(targets map[string]int32) bool {
	return distance(targets, m.Base) < distance(m.From, m.Base)
}

// distance is how many replicas have to change to come from a to b.
func distance(a, b map[string]int32) (n int32) {
	for cluster, replicas := range a {
		n += max(replicas-b[cluster], b[cluster]-replicas)
	}
	for cluster, replicas := range b {
		if _, ok := a[cluster]; !ok {
			n += replicas
		}
	}
	return n
}

func moveOf(meta *metav1.ObjectMeta) (m move) {
	if json.Unmarshal([]byte(meta.Annotations[placementMove]), &m) != nil {
		return move{} // as if nothing were known, which stops more
	}
	return m
}

// next is the move to another placement. A placement that has stood is the base
// of what follows; while removals are stopped, what was before them remains it.
func (m move) next(from, to map[string]int32, now time.Time, stands time.Duration, stopped bool) move {
	if maps.Equal(from, to) {
		return m
	}
	out := move{Base: m.Base, From: from, Since: now.UTC().Truncate(time.Second)}
	if m.Since.IsZero() || now.Sub(m.Since) >= stands && !stopped {
		out.Base = from
	}
	return out
}

// noteMove writes down from where a divided placement moves.
func (e *Engine) noteMove(out *binding, b *binding, d *decision) error {
	if b == nil || b.Spec.Resource.UID != out.Spec.Resource.UID || !d.divided {
		delete(out.Annotations, placementMove)
		return nil
	}
	from, to := targetsOf(b.Spec.Clusters), targetsOf(out.Spec.Clusters)
	if maps.Equal(from, to) {
		return nil
	}
	text, err := json.Marshal(moveOf(&b.ObjectMeta).next(from, to, time.Now(), e.cfg.Breaker.Window, e.breaker.stopsDerived()))
	if err != nil {
		return fmt.Errorf("move of the placement: %w", err)
	}
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, placementMove, string(text))
	return nil
}

func targetsOf(clusters []workv1alpha2.TargetCluster) map[string]int32 {
	out := make(map[string]int32, len(clusters))
	for _, c := range clusters {
		out[c.Name] = c.Replicas
	}
	return out
}

func permanentID(b *binding, key marks.Key) string {
	if id := b.Labels[bindingLabel(key)]; id != "" {
		return id
	}
	return string(uuid.NewUUID())
}

// claim writes on the binding which policy it follows.
func claim(out *binding, t *template, f followed) {
	if f.policy != nil && f.policy.Spec.ActivationPreference == policyv1alpha1.LazyActivation {
		if !f.former || out.Annotations[contentAnnotation] == "" {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, contentAnnotation, contentMark(t))
		}
	} else {
		delete(out.Annotations, contentAnnotation)
	}
	if f.former {
		return
	}
	claimLabels, claimAnnotations := claimMarks(f.policy)
	for _, k := range marks.ClaimLabels {
		delete(out.Labels, k)
	}
	for _, k := range marks.ClaimAnnotations {
		delete(out.Annotations, k)
	}
	for k, v := range claimLabels {
		metav1.SetMetaDataLabel(&out.ObjectMeta, k, v)
	}
	for k, v := range claimAnnotations {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, k, v)
	}
}

// claimMarks are the labels and annotations of a claim.
func claimMarks(p *placement.Policy) (labels, annotations map[string]string) {
	if p == nil {
		return nil, nil
	}
	return marks.Claim(p.Namespace, p.Name, string(p.UID))
}

func describeTargets(targets []workv1alpha2.TargetCluster, divided bool) string {
	if len(targets) == 0 {
		return "no cluster"
	}
	parts := make([]string, 0, len(targets))
	for _, t := range targets {
		if divided {
			parts = append(parts, fmt.Sprintf("%s (%d)", t.Name, t.Replicas))
		} else {
			parts = append(parts, t.Name)
		}
	}
	return strings.Join(parts, ", ")
}

// patchFinalizers writes the finalizers of a template and returns its new
// resourceVersion.
func (e *Engine) patchFinalizers(ctx context.Context, key marks.Key, t *template, finalizers []string) (string, error) {
	w := e.kindOf(key.GroupKind())
	if w == nil {
		return "", errStale
	}
	if finalizers == nil {
		finalizers = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": t.UID, "resourceVersion": t.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return "", fmt.Errorf("finalizers of %s: %w", key, err)
	}
	writes.WithLabelValues("finalizer").Inc()
	got, err := e.client.Resource(w.gvr()).Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: marks.Manager})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("finalizers of %s: %w", key, err)
	}
	return got.GetResourceVersion(), nil
}

// addFinalizer holds the template until its copies are gone. Until the watch
// has seen it, it is not tried again.
func (e *Engine) addFinalizer(ctx context.Context, key marks.Key, t *template) error {
	e.mu.RLock()
	done := newer(e.finalized[key], t.ResourceVersion)
	e.mu.RUnlock()
	if done {
		return nil
	}
	version, err := e.patchFinalizers(ctx, key, t, append(slices.Clone(t.Finalizers), marks.Finalizer))
	if err == nil {
		e.mu.Lock()
		e.finalized[key] = version
		e.mu.Unlock()
	}
	return err
}
