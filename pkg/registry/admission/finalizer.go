package admission

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// TemplateFinalizerPlugin gives new templates the finalizer of the federation
// and the marks of the policy that claims them, and puts these back where a
// write has dropped them.
const TemplateFinalizerPlugin = "IsthmusTemplateFinalizer"

// Selects says whether a new object will be propagated.
type Selects func(gk schema.GroupKind, obj metav1.Object, secretType string) bool

// Claims are the labels and annotations of the policy that claims a new object.
type Claims func(gk schema.GroupKind, obj metav1.Object, secretType string) (labels, annotations map[string]string)

// TemplateFinalizer asks whoever leads the federation here, if it does.
type TemplateFinalizer struct {
	selects atomic.Pointer[Selects]
	claims  atomic.Pointer[Claims]
}

// Lead makes the plugin ask, or with nil stop to ask: then the federation adds
// finalizer and marks where it leads.
func (t *TemplateFinalizer) Lead(selects Selects, claims Claims) {
	if selects == nil {
		t.selects.Store(nil)
		t.claims.Store(nil)
		return
	}
	t.selects.Store(&selects)
	t.claims.Store(&claims)
}

// Register adds the plugin to a set of plugins.
func (t *TemplateFinalizer) Register(plugins *admission.Plugins) {
	plugins.Register(TemplateFinalizerPlugin, func(io.Reader) (admission.Interface, error) {
		return templateFinalizer{admission.NewHandler(admission.Create, admission.Update), t}, nil
	})
}

type templateFinalizer struct {
	*admission.Handler
	*TemplateFinalizer
}

var _ admission.MutationInterface = templateFinalizer{}

// Admit implements admission.MutationInterface. A dry run of a creation shows
// what the client would have written: nothing is propagated of it, and kubectl
// diff asks so.
func (t templateFinalizer) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil //nolint:nilerr // an object without metadata is no template
	}
	if a.GetOperation() == admission.Update {
		if old, err := meta.Accessor(a.GetOldObject()); err == nil && !byEngine(a) {
			keepClaim(obj, old)
			keepFinalizer(obj, old)
		}
		return nil
	}
	gk := a.GetKind().GroupKind()
	if gk.Group == policyv1alpha1.SchemeGroupVersion.Group || gk.Group == workv1alpha2.SchemeGroupVersion.Group || a.IsDryRun() {
		return nil
	}
	secretType := ""
	if secret, ok := a.GetObject().(*core.Secret); ok {
		secretType = string(secret.Type)
	}
	probe := &metav1.ObjectMeta{
		Namespace: a.GetNamespace(), Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
		OwnerReferences: obj.GetOwnerReferences(), DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
	if gk.Kind == "Namespace" && gk.Group == "" {
		probe.Namespace = ""
	}
	var labels, annotations map[string]string
	if claims := t.claims.Load(); claims != nil {
		labels, annotations = (*claims)(gk, probe, secretType)
	}
	setClaim(obj, labels, annotations)
	selects := t.selects.Load()
	if selects == nil || slices.Contains(obj.GetFinalizers(), marks.Finalizer) || !(*selects)(gk, probe, secretType) {
		return nil
	}
	obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), marks.Finalizer))
	return nil
}

// byEngine: the engine changes a claim under its own field manager. Whoever
// says the same may spoil a mark, which the engine writes again.
func byEngine(a admission.Attributes) bool {
	switch o := a.GetOperationOptions().(type) {
	case *metav1.PatchOptions:
		return o.FieldManager == marks.Manager
	case *metav1.UpdateOptions:
		return o.FieldManager == marks.Manager
	}
	return false
}

// keepClaim leaves a claim as it was before a write.
func keepClaim(obj, old metav1.Object) {
	setClaim(obj, old.GetLabels(), old.GetAnnotations())
}

// keepFinalizer: a client that replaces a template as a whole knows nothing of our
// finalizer. Taking it away would be put right by another write, every time.
func keepFinalizer(obj, old metav1.Object) {
	if old.GetDeletionTimestamp() == nil && slices.Contains(old.GetFinalizers(), marks.Finalizer) && !slices.Contains(obj.GetFinalizers(), marks.Finalizer) {
		obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), marks.Finalizer))
	}
}

// setClaim brings the marks of a claim, and nothing else, to those of others.
func setClaim(obj metav1.Object, labels, annotations map[string]string) {
	if out, changed := withKeys(obj.GetLabels(), labels, marks.ClaimLabels); changed {
		obj.SetLabels(out)
	}
	if out, changed := withKeys(obj.GetAnnotations(), annotations, marks.ClaimAnnotations); changed {
		obj.SetAnnotations(out)
	}
}

func withKeys(have, want map[string]string, keys []string) (out map[string]string, changed bool) {
	out = maps.Clone(have)
	for _, k := range keys {
		w, wanted := want[k]
		h, there := have[k]
		switch {
		case wanted && (!there || h != w):
			if out == nil {
				out = map[string]string{}
			}
			out[k], changed = w, true
		case !wanted && there:
			delete(out, k)
			changed = true
		}
	}
	return out, changed
}
