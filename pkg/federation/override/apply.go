package override

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// ErrIdentity is returned for overriders that would make another object of it.
var ErrIdentity = errors.New("apiVersion, kind, name and namespace cannot be overridden")

func apply(obj *unstructured.Unstructured, o policyv1alpha1.Overriders) error {
	gvk, ns, name := obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName()
	if err := images(obj.Object, o.ImageOverrider); err != nil {
		return fmt.Errorf("imageOverrider: %w", err)
	}
	words(obj.Object, "command", o.CommandOverrider)
	words(obj.Object, "args", o.ArgsOverrider)
	if err := keys(obj.Object, "labels", o.LabelsOverrider); err != nil {
		return fmt.Errorf("labelsOverrider: %w", err)
	}
	if err := keys(obj.Object, "annotations", o.AnnotationsOverrider); err != nil {
		return fmt.Errorf("annotationsOverrider: %w", err)
	}
	if err := fields(obj.Object, o.FieldOverrider); err != nil {
		return fmt.Errorf("fieldOverrider: %w", err)
	}
	if err := plaintext(obj, o.Plaintext); err != nil {
		return fmt.Errorf("plaintext: %w", err)
	}
	if obj.GroupVersionKind() != gvk || obj.GetNamespace() != ns || obj.GetName() != name {
		return ErrIdentity
	}
	return nil
}

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func operationOf(op policyv1alpha1.OverriderOperator, path string, value []byte) operation {
	out := operation{Op: string(op), Path: path}
	if op != policyv1alpha1.OverriderRemove {
		if out.Value = value; len(value) == 0 {
			out.Value = json.RawMessage("null")
		}
	}
	return out
}

// plaintext applies the operations as one JSON patch.
func plaintext(obj *unstructured.Unstructured, ops []policyv1alpha1.PlaintextOverrider) error {
	if len(ops) == 0 {
		return nil
	}
	patch := make([]operation, 0, len(ops))
	for _, o := range ops {
		patch = append(patch, operationOf(o.Operator, o.Path, o.Value.Raw))
	}
	doc, err := json.Marshal(obj.Object)
	if err != nil {
		return err
	}
	patched, err := patchJSON(doc, patch)
	if err != nil {
		return err
	}
	var out map[string]any
	if err := utiljson.Unmarshal(patched, &out); err != nil {
		return err
	}
	obj.Object = out
	return nil
}

func patchJSON(doc []byte, ops []operation) ([]byte, error) {
	raw, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return nil, err
	}
	return patch.Apply(doc)
}

// podSpecs finds the Pod specs of an object.
func podSpecs(object map[string]any) []map[string]any {
	paths := [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}}
	if object["kind"] == "Pod" {
		paths = [][]string{{"spec"}}
	}
	var out []map[string]any
	for _, path := range paths {
		v, found, err := unstructured.NestedFieldNoCopy(object, path...)
		if m, ok := v.(map[string]any); err == nil && found && ok {
			out = append(out, m)
		}
	}
	return out
}

// containers calls fn for every container of an object.
func containers(object map[string]any, fn func(map[string]any) error) error {
	for _, spec := range podSpecs(object) {
		for _, field := range []string{"initContainers", "containers"} {
			list, _ := spec[field].([]any)
			for _, c := range list {
				if m, ok := c.(map[string]any); ok {
					if err := fn(m); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func images(object map[string]any, overriders []policyv1alpha1.ImageOverrider) error {
	for _, o := range overriders {
		if o.Predicate != nil {
			if err := imageAt(object, o.Predicate.Path, o); err != nil {
				return err
			}
			continue
		}
		err := containers(object, func(c map[string]any) error {
			image, ok := c["image"].(string)
			if !ok {
				return nil
			}
			changed, err := changeImage(image, o)
			c["image"] = changed
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// imageAt changes the image at a JSON pointer.
func imageAt(object map[string]any, pointer string, o policyv1alpha1.ImageOverrider) error {
	return textAt(object, pointer, func(image string) (string, error) { return changeImage(image, o) })
}

// textAt changes the text at a JSON pointer.
func textAt(object map[string]any, pointer string, change func(string) (string, error)) error {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	var at any = object
	for i, p := range parts {
		p = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
		last := i == len(parts)-1
		switch t := at.(type) {
		case map[string]any:
			text, isText := t[p].(string)
			if !last || !isText {
				at = t[p]
				continue
			}
			changed, err := change(text)
			t[p] = changed
			return err
		case []any:
			n, err := strconv.Atoi(p)
			if err != nil || n < 0 || n >= len(t) {
				return fmt.Errorf("no item %q on the path %s", p, pointer)
			}
			text, isText := t[n].(string)
			if !last || !isText {
				at = t[n]
				continue
			}
			changed, err := change(text)
			t[n] = changed
			return err
		default:
			return fmt.Errorf("nothing at the path %s", pointer)
		}
	}
	return fmt.Errorf("no text at the path %s", pointer)
}

func words(object map[string]any, field string, overriders []policyv1alpha1.CommandArgsOverrider) {
	for _, o := range overriders {
		_ = containers(object, func(c map[string]any) error {
			if c["name"] != o.ContainerName {
				return nil
			}
			list, _ := c[field].([]any)
			if o.Operator == policyv1alpha1.OverriderRemove {
				list = slices.DeleteFunc(slices.Clone(list), func(v any) bool {
					s, ok := v.(string)
					return ok && slices.Contains(o.Value, s)
				})
			} else {
				list = slices.Clone(list)
				for _, v := range o.Value {
					list = append(list, v)
				}
			}
			c[field] = list
			return nil
		})
	}
}

func keys(object map[string]any, field string, overriders []policyv1alpha1.LabelAnnotationOverrider) error {
	for _, o := range overriders {
		have, _, err := unstructured.NestedMap(object, "metadata", field)
		if err != nil {
			return err
		}
		if have == nil {
			have = map[string]any{}
		}
		for k, v := range o.Value {
			_, exists := have[k]
			switch {
			case o.Operator == policyv1alpha1.OverriderRemove:
				delete(have, k)
			case o.Operator == policyv1alpha1.OverriderReplace && !exists:
			default:
				have[k] = v
			}
		}
		if err := unstructured.SetNestedMap(object, have, "metadata", field); err != nil {
			return err
		}
	}
	return nil
}
