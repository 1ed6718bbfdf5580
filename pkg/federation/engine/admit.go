package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// errNotAdmitted is what the author of an override reads.
var errNotAdmitted = errors.New("the control plane does not admit what overrides make of it")

const (
	// admitAgain is when a refusal is looked at again: policies come and go.
	admitAgain = 30 * time.Second
	// admittedLasts is how long an answer is good for other clusters that are
	// told the same, and for the same cluster.
	admittedLasts = time.Minute
	admittedMost  = 4096
)

// overridden is an object before and after overrides that have changed it.
type overridden struct{ plain, changed *unstructured.Unstructured }

func changedBy(plain, u *unstructured.Unstructured) *overridden {
	if equality.Semantic.DeepEqual(plain.Object, u.Object) {
		return nil
	}
	return &overridden{plain: plain, changed: u.DeepCopy()}
}

// admitted remembers for a while what was let in.
type admitted struct {
	mu sync.Mutex
	at map[uint64]time.Time
}

func (a *admitted) has(hash uint64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.at[hash]
	return ok && now.Sub(at) < admittedLasts
}

func (a *admitted) add(hash uint64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.at) >= admittedMost || a.at == nil {
		a.at = map[uint64]time.Time{}
	}
	a.at[hash] = now
}

// refuses asks whether the control plane would take what overrides have made of
// the template, before it is written. Where it would not, the former copy goes on.
func (m *member) refuses(ctx context.Context, key marks.Key, t *template, r *rendered) (bool, error) {
	if r.overridden == nil {
		return false, nil
	}
	hash, err := hashOf(map[string]any{"key": key.String(), "object": r.overridden.changed.Object})
	if err != nil {
		return false, fmt.Errorf("%s: %w", key, err)
	}
	if m.engine.admitted.has(hash, time.Now()) {
		return false, nil
	}
	why, err := m.engine.judge(ctx, key, r.overridden)
	if err != nil {
		err = fmt.Errorf("ask whether overrides are admitted: %w", err)
		m.fail(key, t, err)
		return false, err
	}
	if why == nil {
		m.engine.admitted.add(hash, time.Now())
		return false, nil
	}
	m.fail(key, t, fmt.Errorf("%w: %w", errNotAdmitted, why))
	m.queue.AddAfter(key, admitAgain)
	return true, nil
}

// judge has the control plane's admission look at the object, and at the Pod that
// it makes, in a dry run. What the template is refused for as it stands is not
// the overrides' doing.
func (e *Engine) judge(ctx context.Context, key marks.Key, o *overridden) (refusal, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	w := e.kindOf(key.GroupKind())
	if w == nil {
		return nil, errStale
	}
	if why, err := e.compare(ctx, w.gvr(), o.plain, o.changed); why != nil || err != nil {
		return why, err
	}
	plain, changed := podOf(key.GroupKind(), o.plain), podOf(key.GroupKind(), o.changed)
	if changed == nil || plain != nil && equality.Semantic.DeepEqual(plain.Object, changed.Object) {
		return nil, nil
	}
	return e.compare(ctx, corev1.SchemeGroupVersion.WithResource("pods"), plain, changed)
}

func (e *Engine) compare(ctx context.Context, gvr schema.GroupVersionResource, plain, changed *unstructured.Unstructured) (refusal, err error) {
	why, err := refusalIn(e.tryCreate(ctx, gvr, changed))
	if why == nil || err != nil || plain == nil {
		return why, err
	}
	without, err := refusalIn(e.tryCreate(ctx, gvr, plain))
	if err != nil || without != nil && without.Error() == why.Error() {
		return nil, err
	}
	return why, nil
}

func (e *Engine) tryCreate(ctx context.Context, gvr schema.GroupVersionResource, u *unstructured.Unstructured) error {
	_, err := e.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u.DeepCopy(), metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: marks.Manager, FieldValidation: metav1.FieldValidationIgnore,
	})
	return err
}

// refusalIn sorts an answer: that the template exists is said after admission has
// let it pass, and quotas are counted where the template was created. What is no
// answer is an error.
func refusalIn(answer error) (refusal, err error) {
	switch {
	case answer == nil, apierrors.IsAlreadyExists(answer):
		return nil, nil
	case apierrors.IsForbidden(answer) && (strings.Contains(answer.Error(), "exceeded quota: ") || strings.Contains(answer.Error(), "status unknown for quota: ")):
		return nil, nil
	case apierrors.IsForbidden(answer), apierrors.IsInvalid(answer), apierrors.IsBadRequest(answer), apierrors.IsRequestEntityTooLargeError(answer):
		return answer, nil
	}
	var status apierrors.APIStatus
	if errors.As(answer, &status) && status.Status().Code/100 == 4 && !apierrors.IsTooManyRequests(answer) && !apierrors.IsNotFound(answer) {
		return answer, nil // a policy may choose its code
	}
	return nil, answer
}

// podOf is the Pod that an object makes, as admission would see it; nil of kinds
// that make none. Those of workloads are judged by PodSecurity and LimitRanges as
// Pods only.
func podOf(gk schema.GroupKind, u *unstructured.Unstructured) *unstructured.Unstructured {
	path := []string{"spec", "template"}
	switch {
	case gk == cronJobKind:
		path = []string{"spec", "jobTemplate", "spec", "template"}
	case !divisible(gk) && gk != daemonSetKind && gk != jobKind:
		return nil
	}
	pod, found, err := unstructured.NestedMap(u.Object, path...)
	if err != nil || !found {
		return nil
	}
	out := &unstructured.Unstructured{Object: pod}
	out.SetAPIVersion("v1")
	out.SetKind("Pod")
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	if len(u.GetName()) > 63 {
		out.SetName(u.GetName()[:60] + "xxx")
	}
	return out
}
