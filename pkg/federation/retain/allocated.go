package retain

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Unallocated takes out of a Service what the control plane's API server has
// allocated and nobody has asked for: node ports and IP families. A value that
// somebody wrote has an owner in managedFields and stays, the same in every
// member; an allocated one has none. It must see the object with its
// managedFields, and leaves other kinds alone.
func Unallocated(obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	if gvk.Group != "" || gvk.Kind != "Service" {
		return nil
	}
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return nil
	}
	owned, err := ownedFields(obj.GetManagedFields())
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	for _, field := range []string{"healthCheckNodePort", "ipFamilies", "ipFamilyPolicy"} {
		if !hasUnder(owned, fieldpath.MakePathOrDie("spec", field)) {
			delete(spec, field)
		}
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		port, ok := p.(map[string]any)
		if !ok {
			continue
		}
		key := fieldpath.KeyByFields("port", port["port"], "protocol", port["protocol"])
		if path, err := fieldpath.MakePath("spec", "ports", key, "nodePort"); err != nil || !owned.Has(path) {
			delete(port, "nodePort")
		}
	}
	return nil
}

// ownedFields is the union of what all managers have written to the object
// itself, not to a subresource.
func ownedFields(entries []metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	owned := fieldpath.NewSet()
	for _, e := range entries {
		if e.FieldsV1 == nil || e.Subresource != "" {
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes())); err != nil {
			return nil, fmt.Errorf("managedFields of %q: %w", e.Manager, err)
		}
		owned = owned.Union(&set)
	}
	return owned, nil
}

func hasUnder(set *fieldpath.Set, path fieldpath.Path) bool {
	if set.Has(path) {
		return true
	}
	for _, e := range path {
		set = set.WithPrefix(e)
	}
	return !set.Empty()
}
