package override

import (
	"encoding/base64"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// maxDocument bounds the document inside a string.
const maxDocument = 1 << 20

var errDocumentTooLarge = errors.New("the document is larger than 1 MiB")

// fields changes documents inside strings. The data of a Secret is base64.
func fields(object map[string]any, overriders []policyv1alpha1.FieldOverrider) error {
	for _, o := range overriders {
		change := func(text string) (string, error) { return changeDocument(text, o) }
		if object["kind"] == "Secret" && object["apiVersion"] == "v1" && len(o.FieldPath) > 6 && o.FieldPath[:6] == "/data/" {
			change = func(text string) (string, error) {
				raw, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					return text, fmt.Errorf("the data is not base64: %w", err)
				}
				changed, err := changeDocument(string(raw), o)
				return base64.StdEncoding.EncodeToString([]byte(changed)), err
			}
		}
		if err := textAt(object, o.FieldPath, change); err != nil {
			return err
		}
	}
	return nil
}

func changeDocument(text string, o policyv1alpha1.FieldOverrider) (string, error) {
	if len(text) > maxDocument {
		return text, errDocumentTooLarge
	}
	ops, asYAML := o.JSON, false
	if len(o.YAML) > 0 {
		ops, asYAML = o.YAML, true
	}
	if len(ops) == 0 {
		return text, nil
	}
	patch := make([]operation, 0, len(ops))
	for _, op := range ops {
		patch = append(patch, operationOf(op.Operator, op.SubPath, op.Value.Raw))
	}
	doc := []byte(text)
	var err error
	if asYAML {
		if doc, err = yaml.YAMLToJSON(doc); err != nil {
			return text, fmt.Errorf("%s is not YAML: %w", o.FieldPath, err)
		}
	}
	if doc, err = patchJSON(doc, patch); err != nil {
		return text, fmt.Errorf("%s: %w", o.FieldPath, err)
	}
	if asYAML {
		if doc, err = yaml.JSONToYAML(doc); err != nil {
			return text, fmt.Errorf("%s: %w", o.FieldPath, err)
		}
	}
	return string(doc), nil
}
