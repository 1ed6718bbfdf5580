package admission

import (
	"context"
	"io"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// TemplateFinalizerPlugin gives new templates the finalizer of the federation.
const TemplateFinalizerPlugin = "IsthmusTemplateFinalizer"

// Selects says whether a new object will be propagated.
type Selects func(gk schema.GroupKind, obj metav1.Object, secretType string) bool

// TemplateFinalizer asks whoever leads the federation here, if it does.
type TemplateFinalizer struct{ selects atomic.Pointer[Selects] }

// Lead makes the plugin ask, or with nil stop to ask: then the federation adds
// the finalizer where it leads.
func (t *TemplateFinalizer) Lead(selects Selects) {
	if selects == nil {
		t.selects.Store(nil)
		return
	}
	t.selects.Store(&selects)
}

// Register adds the plugin to a set of plugins.
func (t *TemplateFinalizer) Register(plugins *admission.Plugins) {
	plugins.Register(TemplateFinalizerPlugin, func(io.Reader) (admission.Interface, error) {
		return templateFinalizer{admission.NewHandler(admission.Create), t}, nil
	})
}

type templateFinalizer struct {
	*admission.Handler
	*TemplateFinalizer
}

var _ admission.MutationInterface = templateFinalizer{}

// Admit implements admission.MutationInterface. A dry run shows what the client
// would have written: nothing is propagated of it, and kubectl diff asks so.
func (t templateFinalizer) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	selects := t.selects.Load()
	if selects == nil || a.IsDryRun() || a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil //nolint:nilerr // an object without metadata is no template
	}
	secretType := ""
	if secret, ok := a.GetObject().(*core.Secret); ok {
		secretType = string(secret.Type)
	}
	probe := &metav1.ObjectMeta{
		Namespace: a.GetNamespace(), Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
		OwnerReferences: obj.GetOwnerReferences(), DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
	if a.GetKind().Kind == "Namespace" && a.GetKind().Group == "" {
		probe.Namespace = ""
	}
	if slices.Contains(obj.GetFinalizers(), marks.Finalizer) || !(*selects)(a.GetKind().GroupKind(), probe, secretType) {
		return nil
	}
	obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), marks.Finalizer))
	return nil
}
