package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// ErrRefused is the reason of every refusal to take an object over.
var ErrRefused = errors.New("adoption is refused")

// podTemplates are the parts of an object whose change replaces running Pods.
var podTemplates = map[schema.GroupKind][]string{
	{Group: "apps", Kind: "Deployment"}:  {"spec", "template"},
	{Group: "apps", Kind: "StatefulSet"}: {"spec", "template"},
	{Group: "apps", Kind: "DaemonSet"}:   {"spec", "template"},
	{Group: "apps", Kind: "ReplicaSet"}:  {"spec", "template"},
	{Kind: "ReplicationController"}:      {"spec", "template"},
	{Group: "batch", Kind: "Job"}:        {"spec", "template"},
}

// shownDiff bounds what a refusal tells.
const shownDiff = 2000

// Judge compares an object as it is with what a dry run of our apply has made of
// it, and refuses when running Pods would be replaced.
func Judge(live, answer *unstructured.Unstructured) error {
	path, ok := podTemplates[live.GroupVersionKind().GroupKind()]
	if !ok {
		return nil
	}
	was, _, err := unstructured.NestedFieldNoCopy(live.Object, path...)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	will, _, err := unstructured.NestedFieldNoCopy(answer.Object, path...)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	changes := Diff(was, will)
	if len(changes) == 0 {
		return nil
	}
	for i := range changes {
		changes[i].Path = strings.TrimSuffix(strings.Join(path, ".")+"."+changes[i].Path, ".")
	}
	return fmt.Errorf("%w: the pod template would change and Pods be replaced: %s", ErrRefused, Describe(changes, shownDiff))
}

// Foreign says whether another control plane's marks are on an object, and
// about that very object.
func Foreign(controlPlane string, key marks.Key, u *unstructured.Unstructured) (other string, foreign bool) {
	other = u.GetAnnotations()[marks.ControlPlane]
	if other == "" || other == controlPlane {
		return "", false
	}
	return other, marks.Owned(other, key, u.GetLabels(), u.GetAnnotations())
}

// Changes are what our apply would do to an object, but for its marks and what
// every write changes.
func Changes(live, answer *unstructured.Unstructured) []Change {
	return Diff(content(live), content(answer))
}

func content(u *unstructured.Unstructured) map[string]any {
	out := u.DeepCopy().Object
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "creationTimestamp"} {
		unstructured.RemoveNestedField(out, "metadata", field)
	}
	delete(out, "status")
	meta, _ := out["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		m, _ := meta[field].(map[string]any)
		for k := range m {
			if strings.HasPrefix(k, marks.Prefix) || slices.Contains(bindingLabels, k) {
				delete(m, k)
			}
		}
		if len(m) == 0 {
			delete(meta, field)
		}
	}
	return out
}

var bindingLabels = []string{marks.BindingID, marks.ClusterBindingID}
