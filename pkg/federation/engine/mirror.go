package engine

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// mirror writes on the template which policy its binding follows. Admission
// writes it at the creation and puts it back when a client drops it, so that a
// write is due only when the policy is another one.
func (e *Engine) mirror(ctx context.Context, key marks.Key, t *template, f followed) (written bool, err error) {
	if f.former {
		return false, nil
	}
	var labels, annotations map[string]string
	if f.policy != nil && !f.policy.Default {
		labels, annotations = claimMarks(f.policy)
	}
	changed := map[string]any{}
	for field, part := range map[string]struct {
		keys       []string
		want, have map[string]string
	}{
		"labels":      {marks.ClaimLabels, labels, t.Labels},
		"annotations": {marks.ClaimAnnotations, annotations, t.Annotations},
	} {
		if diff := difference(part.keys, part.want, part.have); len(diff) > 0 {
			changed[field] = diff
		}
	}
	w := e.kindOf(key.GroupKind())
	if len(changed) == 0 || w == nil {
		return false, nil
	}
	changed["uid"], changed["resourceVersion"] = t.UID, t.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": changed})
	if err != nil {
		return false, fmt.Errorf("claim of %s: %w", key, err)
	}
	writes.WithLabelValues("claim").Inc()
	_, err = e.client.Resource(w.gvr()).Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: marks.Manager})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsConflict(err):
		return false, fmt.Errorf("%w: %w", errStale, err)
	case err != nil:
		return false, fmt.Errorf("claim of %s: %w", key, err)
	}
	return true, nil
}

// difference is the merge patch of some keys.
func difference(keys []string, want, have map[string]string) map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		w, wanted := want[k]
		h, there := have[k]
		switch {
		case wanted && (!there || w != h):
			out[k] = w
		case !wanted && there:
			out[k] = nil
		}
	}
	return out
}
