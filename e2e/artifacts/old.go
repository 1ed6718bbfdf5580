package artifacts

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// OldKubernetesVersions are those of members for tests of version skew, the
// oldest first: every one is a module file in skew/old.
func OldKubernetesVersions() []string { return []string{"v1.34.4", "v1.35.4", "v1.36.3"} }

// EnsureOldKubernetes builds the control plane of an older Kubernetes unless it
// is there, and returns the folder of its programs.
func (s Set) EnsureOldKubernetes(ctx context.Context, version string, logf Logf) (string, error) {
	const dir = "skew/old"
	known := OldKubernetesVersions()
	at := slices.Index(known, version)
	if at < 0 {
		return "", fmt.Errorf("kubernetes %s is not one of %s", version, strings.Join(known, ", "))
	}
	key, err := sourceKey(filepath.Join(s.Root, "e2e", dir))
	if err != nil {
		return "", err
	}
	s.Dir = filepath.Join(filepath.Dir(s.Dir), version+"-"+key)
	t := target{
		name: "kubernetes", label: "kubernetes " + version, dir: dir, pkg: ".", ldflags: versionFlags(version),
		links: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}, hint: "about 6 minutes the first time on 2 cores",
	}
	if at > 0 {
		t.modfile = version[:strings.LastIndexByte(version, '.')] + ".mod"
	}
	unlock, err := s.lock(ctx, logf)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.build(ctx, t, logf); err != nil {
		return "", fmt.Errorf("an older Kubernetes: %w", err)
	}
	return s.Dir, nil
}
