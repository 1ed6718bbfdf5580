package retain

import "strings"

// What GitOps tools and installers write on the objects that they manage, to find
// them again and to remove them. On a copy it would let a tool that works on the
// member take the copy for its own, and prune it. Keys that mean something to
// those who use the object stay.
var (
	toolLabels = map[string]bool{
		"argocd.argoproj.io/instance":           true,
		"kustomize.toolkit.fluxcd.io/name":      true,
		"kustomize.toolkit.fluxcd.io/namespace": true,
		"helm.toolkit.fluxcd.io/name":           true,
		"helm.toolkit.fluxcd.io/namespace":      true,
		"applyset.kubernetes.io/part-of":        true,
		"kapp.k14s.io/app":                      true,
		"kapp.k14s.io/association":              true,
		"objectset.rio.cattle.io/hash":          true,
		"fleet.cattle.io/bundle-id":             true,
	}
	toolAnnotations = map[string]bool{
		"argocd.argoproj.io/tracking-id":       true,
		"argocd.argoproj.io/installation-id":   true,
		"kustomize.toolkit.fluxcd.io/checksum": true,
		"meta.helm.sh/release-name":            true,
		"meta.helm.sh/release-namespace":       true,
		"config.k8s.io/owning-inventory":       true,
		"kapp.k14s.io/identity":                true,
		"kapp.k14s.io/original":                true,
		"kapp.k14s.io/original-diff-md5":       true,
	}
	toolPrefixes = []string{"objectset.rio.cattle.io/"}
)

func ofTool(key string, keys map[string]bool) bool {
	if keys[key] {
		return true
	}
	for _, p := range toolPrefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
