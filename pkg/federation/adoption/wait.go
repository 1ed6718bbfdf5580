package adoption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// verdict on a binding: done, a reason to give up, or neither: not yet.
type verdict func(w *work, b *workv1alpha2.ResourceBinding) (done bool, err error)

// await looks at the bindings of a batch until a verdict has been reached on each,
// and then does what comes next.
func (r *run) await(ctx context.Context, batch []*work, judge verdict, next func(context.Context, *work) error) error {
	open := map[*work]bool{}
	for _, w := range batch {
		if w.err == nil {
			open[w] = true
		}
	}
	err := until(ctx, r.Wait, func() (bool, error) {
		return r.awaitOnce(ctx, open, judge, next)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		for w := range open {
			w.err = fmt.Errorf("the engine has not come to it within %s: run the command again", r.Wait)
		}
		return nil
	}
	return err
}

func (r *run) awaitOnce(ctx context.Context, open map[*work]bool, judge verdict, next func(context.Context, *work) error) (bool, error) {
	seen := map[string]map[string]*workv1alpha2.ResourceBinding{}
	for w := range open {
		if _, ok := seen[w.namespace]; !ok {
			bindings, err := r.hub.bindings(ctx, w.namespace)
			if err != nil {
				return false, err
			}
			seen[w.namespace] = bindings
		}
		b := seen[w.namespace][bindingKey(w.GroupKind(), w.name)]
		if b == nil {
			continue
		}
		done, err := judge(w, b)
		if err == nil && done {
			err = next(ctx, w)
		}
		if w.err = err; done || err != nil {
			delete(open, w)
		}
	}
	return len(open) == 0, nil
}

// placed: the binding is as planned.
func (r *run) placed(w *work, b *workv1alpha2.ResourceBinding) (bool, error) {
	name := adopt.PolicyName(w.plan.Template.GetAPIVersion(), w.Kind, w.name)
	if b.Annotations[namespacePolicyName] != name && b.Annotations[clusterPolicyName] != name {
		return false, nil // decided before the policy was seen
	}
	want := map[string]bool{}
	for _, c := range w.plan.Clusters {
		want[c] = true
	}
	for _, c := range b.Spec.Clusters {
		if n, divided := w.plan.Replicas[c.Name]; !want[c.Name] || divided && n != c.Replicas {
			return false, nil
		}
		delete(want, c.Name)
	}
	return len(want) == 0, nil
}

const (
	namespacePolicyName = "propagationpolicy.karmada.io/name"
	clusterPolicyName   = "clusterpropagationpolicy.karmada.io/name"
)

// lift takes the hold off a template.
func (r *run) lift(ctx context.Context, w *work) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{marks.Hold: nil}}})
	if err != nil {
		return fmt.Errorf("hold of %s: %w", w, err)
	}
	_, err = r.hub.resource(w.kind, w.namespace).Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("hold of %s: %w", w, err)
	}
	return nil
}

// applied: the engine has written every copy, or refuses to.
func applied(_ *work, b *workv1alpha2.ResourceBinding) (bool, error) {
	if c := meta.FindStatusCondition(b.Status.Conditions, conditionAdopted); c != nil && c.Status == metav1.ConditionFalse {
		return false, fmt.Errorf("%w: %s", adopt.ErrRefused, strings.TrimPrefix(c.Message, adopt.ErrRefused.Error()+": "))
	}
	c := meta.FindStatusCondition(b.Status.Conditions, workv1alpha2.ConditionFullyApplied)
	return c != nil && c.Status == metav1.ConditionTrue, nil
}

// conditionAdopted is the engine's word on adoption.
const conditionAdopted = "Adopted"
