package engine

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
)

// conditionLimited, on a binding, says that the namespace allows only some
// clusters, whatever the policy says.
const conditionLimited = "LimitedByNamespace"

// limit is what a namespace allows.
type limit struct {
	namespace string
	// clusters that are allowed; nil allows all.
	clusters []string
	problem  string // why none is
}

// limitOf reads the limit of a template's namespace. A namespace that is not in
// the cache yet may have any.
func (e *Engine) limitOf(key marks.Key) (limit, error) {
	name := key.Namespace
	if key.GroupKind() == namespaceKind {
		name = key.Name
	}
	if name == "" {
		return limit{}, nil
	}
	ns := e.template(marks.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind(namespaceKind.Kind), Name: name})
	if ns == nil {
		return limit{}, fmt.Errorf("%w: namespace %s", errStale, name)
	}
	text, limited := ns.Annotations[placement.ClustersAnnotation]
	if !limited {
		return limit{}, nil
	}
	out := limit{namespace: name}
	var err error
	if out.clusters, err = placement.ParseClusters(text); err != nil {
		// Admission lets no such one pass: it is from before, or past it.
		out.problem = err.Error()
	}
	return out, nil
}

func (l limit) limits() bool { return l.clusters != nil || l.problem != "" }

func (l limit) allows(cluster string) bool {
	return !l.limits() || slices.Contains(l.clusters, cluster)
}

func (l limit) String() string {
	if l.problem != "" {
		return fmt.Sprintf("the annotation %s of namespace %s allows no cluster: it %s", placement.ClustersAnnotation, l.namespace, l.problem)
	}
	return fmt.Sprintf("the annotation %s of namespace %s allows %s", placement.ClustersAnnotation, l.namespace, strings.Join(l.clusters, ", "))
}

// apply narrows what is wanted. A limit that cannot be read keeps what is there
// and places nothing new.
func (l limit) apply(want *workv1alpha2.ResourceBindingSpec) {
	if len(l.clusters) > 0 && want.Placement != nil {
		want.Placement = placement.Limit(want.Placement, l.clusters)
	}
}

// limitChanged looks again at everything in a namespace.
func (e *Engine) limitChanged(old, ns *template) {
	if old == nil || old.Annotations[placement.ClustersAnnotation] == ns.Annotations[placement.ClustersAnnotation] {
		return
	}
	e.mu.RLock()
	watches := make([]*kindWatch, 0, len(e.kinds))
	for _, w := range e.kinds {
		if w.namespaced {
			watches = append(watches, w)
		}
	}
	e.mu.RUnlock()
	for _, w := range watches {
		objs, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, ns.Name)
		if err != nil {
			continue
		}
		for _, obj := range objs {
			if t, ok := obj.(*template); ok {
				e.templateQueue.AddAs(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name}, priority.Of(len(objs)))
			}
		}
	}
}

// showLimit keeps the condition, and tells once what it says.
func (e *Engine) showLimit(conditions *[]metav1.Condition, key marks.Key, t *template, l limit, generation int64) bool {
	was := meta.FindStatusCondition(*conditions, conditionLimited)
	if !l.limits() {
		return was != nil && meta.RemoveStatusCondition(conditions, conditionLimited)
	}
	if was == nil || was.Message != l.String() {
		e.event(key, t, corev1.EventTypeNormal, reasonLimited, "Whatever its policy says, %s", l)
	}
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: conditionLimited, Status: metav1.ConditionTrue, Reason: "ClustersOfNamespace", Message: l.String(), ObservedGeneration: generation,
	})
}
