package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// EnsureKubelet builds the server of the Pods' streams and returns its path. It
// goes by its own sources, so that a change of it builds nothing else again and
// a member that runs keeps its file.
func (s Set) EnsureKubelet(ctx context.Context, logf Logf) (string, error) {
	key, err := sourceKey(filepath.Join(s.Root, "e2e", "kubelet"))
	if err != nil {
		return "", err
	}
	t := target{name: "lab-kubelet-" + key, label: "lab-kubelet", dir: "kubelet", pkg: "./cmd/lab-kubelet", hint: "about half a minute the first time"}
	if _, err := os.Stat(s.Path(t.name)); err == nil {
		return s.Path(t.name), nil
	}
	unlock, err := s.lock(ctx, logf)
	if err != nil {
		return "", err
	}
	defer unlock()
	return s.Path(t.name), s.build(ctx, t, logf)
}

// sourceKey digests what decides a binary of the module in that folder.
func sourceKey(dir string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		source := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") ||
			strings.HasSuffix(name, ".mod") || strings.HasSuffix(name, ".sum") || name == "package.json" || name == "package-lock.json"
		if entry.IsDir() || !source {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintln(h, strings.TrimPrefix(path, dir), len(data))
		h.Write(data)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("sources of %s: %w", filepath.Base(dir), err)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}
