package artifacts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// modules writes the files that the version key reads.
func modules(t *testing.T, goMod string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": goMod, "kwok/go.mod": "module kwok\n", "metricsserver/go.mod": "module metrics\n",
		"multicall/main.go": "package main\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVersionKeyFollowsVersionsOnly(t *testing.T) {
	const base = "module x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api v0.37.2\n\tk8s.io/b v1.0.0 // indirect\n)\n"
	key := func(goMod string) string {
		t.Helper()
		k, err := versionKey(modules(t, goMod))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	want := key(base)
	for name, tc := range map[string]struct {
		goMod string
		same  bool
	}{
		"unchanged":              {base, true},
		"a comment":              {strings.Replace(base, " // indirect", "", 1), true},
		"one requirement a line": {strings.NewReplacer("require (\n\t", "require ", "\n\tk8s.io/b", "\nrequire k8s.io/b", ")\n", "").Replace(base), true},
		"a tool":                 {base + "\ntool k8s.io/api/cmd\n", true},
		"another version":        {strings.Replace(base, "0.37.2", "0.37.3", 1), false},
		"another module":         {strings.Replace(base, "k8s.io/b", "k8s.io/c", 1), false},
		"a replacement":          {base + "replace k8s.io/b => k8s.io/c v1.0.0\n", false},
		"a local replacement":    {base + "replace k8s.io/b => ../b\n", false},
	} {
		if got := key(tc.goMod) == want; got != tc.same {
			t.Errorf("%s: the key is the same: %t, want %t", name, got, tc.same)
		}
	}
}

func TestLockExcludesAndIsReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lock")
	logf := func(string, ...any) {}
	unlock, err := lockFile(t.Context(), path, logf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path, logf); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second holder: %v, want it to wait", err)
	}
	unlock()
	again, err := lockFile(t.Context(), path, logf)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestCompleteNeedsEveryName(t *testing.T) {
	set := Set{Dir: t.TempDir()}
	want := targets()
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(set.Path(name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if set.complete(want) {
		t.Fatal("an empty folder is complete")
	}
	for _, target := range want {
		touch(target.name)
		for _, link := range target.links {
			if err := os.Symlink(target.name, set.Path(link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if set.complete(want) {
		t.Fatal("complete without kwok's configuration")
	}
	if err := os.Mkdir(set.StagesDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if !set.complete(want) {
		t.Fatal("incomplete though nothing is missing")
	}
	// A link whose binary an interrupted run took away is not there either.
	if err := os.Remove(set.Path("kubernetes")); err != nil {
		t.Fatal(err)
	}
	if set.complete(want) {
		t.Fatal("complete with dangling links")
	}
}

func TestVersionFlagsStampWhatKubectlParses(t *testing.T) {
	flags := versionFlags(KubernetesVersion)
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=" + KubernetesVersion,
		"-X k8s.io/client-go/pkg/version.gitMajor=1 ",
		"-X k8s.io/client-go/pkg/version.gitMinor=37 ",
	} {
		if !strings.Contains(flags+" ", want) {
			t.Errorf("%q lacks %q", flags, want)
		}
	}
}

func TestEqualContentKeepsTheFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "staging"), filepath.Join(dir, "out")
	put := func(content string) os.FileInfo {
		t.Helper()
		if err := os.WriteFile(from, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := replaceIfNew(from, to, t.Logf); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(to)
		if err != nil || string(data) != content {
			t.Fatalf("the file holds %q (%v), want %q", data, err, content)
		}
		info, err := os.Stat(to)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := put("one")
	if second := put("one"); !os.SameFile(first, second) || !first.ModTime().Equal(second.ModTime()) {
		t.Error("equal content replaced the file, so whatever runs it is restarted")
	}
	if third := put("two"); os.SameFile(first, third) {
		t.Error("new content was written into the file that may be running")
	}
}
