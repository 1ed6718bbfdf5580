package retain

import (
	"maps"
	"slices"
)

// AddVersions makes a CustomResourceDefinition additive: versions that the
// member's has and the template does not know stay, served as they were, so that
// neither stored objects nor clients of the member lose theirs. One version is
// the stored one: the template's. It returns the names of what stays.
func AddVersions(desired, observed map[string]any) (kept []string) {
	spec, _ := desired["spec"].(map[string]any)
	there, _ := observed["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) == 0 {
		return nil
	}
	var known []string
	for _, v := range versions {
		known = append(known, versionName(v))
	}
	others, _ := there["versions"].([]any)
	for _, v := range others {
		name := versionName(v)
		if name == "" || slices.Contains(known, name) {
			continue
		}
		version, _ := v.(map[string]any)
		stays := maps.Clone(version)
		stays["storage"] = false
		versions = append(versions, stays)
		kept = append(kept, name)
	}
	spec["versions"] = versions
	return kept
}

func versionName(v any) string {
	version, _ := v.(map[string]any)
	name, _ := version["name"].(string)
	return name
}
