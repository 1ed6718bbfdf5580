package engine

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// template is what is cached of a template: its metadata for decisions and its
// JSON for rendering, which is a fraction of what decoded maps take.
type template struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// raw is the object without managedFields and without what the control
	// plane has merely allocated.
	raw []byte
	// content is a hash over all that propagation depends on: status writes
	// do not change it.
	content uint64
	// asked is the same without what the engine writes on templates.
	asked uint64
	// replicas wanted, of kinds that have them.
	replicas int32
}

func (t *template) decode() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(t.raw); err != nil {
		return nil, fmt.Errorf("template %s/%s: %w", t.Namespace, t.Name, err)
	}
	return u, nil
}

// labels of a template that may not be there.
func (t *template) labels() map[string]string {
	if t == nil {
		return nil
	}
	return t.Labels
}

// finalized: our finalizer holds the template.
func (t *template) finalized() bool {
	return slices.Contains(t.Finalizers, marks.Finalizer)
}

// transformTemplate is idempotent, as informers require.
func transformTemplate(obj any) (any, error) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return d, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	if err := retain.Unallocated(u); err != nil {
		return nil, err
	}
	u.SetManagedFields(nil)
	if _, no := intent.Forbidden(u.GroupVersionKind().GroupKind(), u, ""); no && u.GetKind() == replicaSetKind.Kind {
		// Revisions are many and never rendered.
		u.Object["spec"], u.Object["status"] = map[string]any{}, map[string]any{}
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("template %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	content, asked, err := contentHash(u.Object)
	if err != nil {
		return nil, err
	}
	return &template{
		TypeMeta: metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()},
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
			Labels: u.GetLabels(), Annotations: decisive(u.GetAnnotations()), Finalizers: u.GetFinalizers(),
			CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(), OwnerReferences: controllers(u),
		},
		raw: raw, content: content, asked: asked, replicas: replicasOf(u),
	}, nil
}

func replicasOf(u *unstructured.Unstructured) int32 {
	n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if err != nil || !found {
		return 0
	}
	return int32(min(n, math.MaxInt32))
}

// controllers keeps the owner that decides whether a ReplicaSet is a template.
func controllers(u *unstructured.Unstructured) []metav1.OwnerReference {
	if c := metav1.GetControllerOf(u); c != nil {
		return []metav1.OwnerReference{*c}
	}
	return nil
}

// decisive keeps the annotations that decisions read; the others are in raw.
func decisive(all map[string]string) map[string]string {
	var out map[string]string
	for _, k := range append([]string{marks.Hold, conflictAnnotation, revisionAnnotation, placement.MoveVolumesAnnotation, placement.ClustersAnnotation}, marks.ClaimAnnotations...) {
		if v, ok := all[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

const (
	conflictAnnotation = "work.karmada.io/conflict-resolution"
	revisionAnnotation = "deployment.kubernetes.io/revision"
	skipNamespaceLabel = "namespace.karmada.io/skip-auto-propagation"
)

// contentHash is a hash over what propagation depends on; asked leaves out what
// the engine itself writes: finalizers, claims, revisions. The first is recorded
// in bindings, so it stays the hash of the JSON of the whole.
func contentHash(object map[string]any) (content, asked uint64, err error) {
	all, users := fnv.New64a(), fnv.New64a()
	sep := []byte("{")
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if k == "status" {
			continue
		}
		v, ours := object[k], object[k]
		if k == "metadata" {
			meta, _ := v.(map[string]any)
			v, ours = metaWithout(meta, false), metaWithout(meta, true)
		}
		raw, err := json.Marshal(map[string]any{k: v})
		if err != nil {
			return 0, 0, fmt.Errorf("hash: %w", err)
		}
		raw = raw[1 : len(raw)-1]
		_, _ = all.Write(sep)
		_, _ = all.Write(raw)
		if k == "metadata" {
			if raw, err = json.Marshal(ours); err != nil {
				return 0, 0, fmt.Errorf("hash: %w", err)
			}
		}
		_, _ = users.Write(raw)
		sep = []byte(",")
	}
	_, _ = all.Write([]byte("}"))
	return all.Sum64(), users.Sum64(), nil
}

// metaWithout leaves out what every write changes and, if asked, what the engine
// writes.
func metaWithout(meta map[string]any, engine bool) map[string]any {
	kept := map[string]any{}
	for k, v := range meta {
		switch k {
		case "resourceVersion", "managedFields", "generation":
			continue
		case "finalizers":
			if engine {
				continue
			}
		case "labels", "annotations":
			if values, ok := v.(map[string]any); ok && engine {
				others := maps.Clone(values)
				maps.DeleteFunc(others, func(key string, _ any) bool {
					return slices.Contains(marks.ClaimLabels, key) || slices.Contains(marks.ClaimAnnotations, key) || key == revisionAnnotation
				})
				if v = any(others); len(others) == 0 {
					continue
				}
			}
		}
		kept[k] = v
	}
	return kept
}

func hashOf(v any) (uint64, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("hash: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return h.Sum64(), nil
}

// newer says whether resourceVersion a is later than b.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}
