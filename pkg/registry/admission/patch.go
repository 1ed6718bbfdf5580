package admission

import (
	"encoding/json"
	"fmt"
	"mime"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// applyPatch returns what the object would look like. An apply patch is judged
// as a merge: fields it leaves out stay, which is what a policy must see.
func applyPatch(old runtime.Object, contentType string, patch []byte) (runtime.Object, error) {
	original, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode the present object: %w", err)
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	var result []byte
	switch types.PatchType(kind) {
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(patch); err == nil {
			result, err = p.Apply(original)
		}
	case types.MergePatchType:
		result, err = jsonpatch.MergePatch(original, patch)
	case types.StrategicMergePatchType:
		result, err = strategicpatch.StrategicMergePatch(original, patch, old)
	case types.ApplyYAMLPatchType:
		if patch, err = yaml.YAMLToJSON(patch); err == nil {
			result, err = strategicpatch.StrategicMergePatch(original, patch, old)
		}
	default:
		return nil, fmt.Errorf("patch type %q is not known", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	object, _ := proxy.DecodeObject(result)
	if object == nil {
		return nil, fmt.Errorf("the patched object cannot be decoded")
	}
	return object, nil
}
