package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Selects says whether an object that is being created will be a template, so
// that it can be given our finalizer from the start: a later write of it would
// take the resourceVersion from under the client that created it. When in
// doubt it says no, and the engine adds the finalizer itself.
func (e *Engine) Selects(gk schema.GroupKind, obj metav1.Object, secretType string) bool {
	return e.speaksFor(gk, obj, secretType) != nil
}

// Claims are the labels and annotations of the claim that a policy has on an
// object that is being created, so that they too are there from the start. A
// default policy leaves no mark.
func (e *Engine) Claims(gk schema.GroupKind, obj metav1.Object, secretType string) (labels, annotations map[string]string) {
	policy := e.speaksFor(gk, obj, secretType)
	if policy == nil || policy.Default {
		return nil, nil
	}
	return claimMarks(policy)
}

func (e *Engine) speaksFor(gk schema.GroupKind, obj metav1.Object, secretType string) *placement.Policy {
	w := e.kindOf(gk)
	if w == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	if _, no := intent.Forbidden(gk, obj, secretType); no {
		return nil
	}
	if gk == namespaceKind && obj.GetLabels()[skipNamespaceLabel] == "true" {
		return nil
	}
	index, _ := e.policies.current()
	policy, _ := index.Match(placement.Template{
		APIVersion: w.GroupVersion().String(), Kind: gk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Labels: obj.GetLabels(), ExactName: intent.NeedsExactName(gk),
	}, "")
	return policy
}

// InPlace says whether the members that can be reached have a template as it
// is, as far as there is anything for them to have.
func (e *Engine) InPlace(gk schema.GroupKind, namespace, name string, uid types.UID) bool {
	w := e.kindOf(gk)
	if w == nil {
		return true
	}
	key := marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: namespace, Name: name}
	t, d := e.template(key), e.decisionOf(key)
	if t == nil || t.UID != uid || d == nil || d.uid != uid {
		return false
	}
	parts, problems, err := e.parts(key, t, d)
	return err == nil && !underWay(parts, problems)
}
