package artifacts

import (
	"context"
	"fmt"
	"path/filepath"
)

// OldKubernetesVersion is that of a member for tests of version skew.
const OldKubernetesVersion = "v1.34.4"

// EnsureOldKubernetes builds the control plane of an older Kubernetes unless it
// is there, and returns the folder of its programs.
func (s Set) EnsureOldKubernetes(ctx context.Context, logf Logf) (string, error) {
	const dir = "skew/old"
	key, err := sourceKey(filepath.Join(s.Root, "e2e", dir))
	if err != nil {
		return "", err
	}
	s.Dir = filepath.Join(filepath.Dir(s.Dir), OldKubernetesVersion+"-"+key)
	t := target{
		name: "kubernetes", label: "kubernetes " + OldKubernetesVersion, dir: dir, pkg: ".", ldflags: versionFlags(OldKubernetesVersion),
		links: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}, hint: "about 6 minutes the first time on 2 cores",
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
