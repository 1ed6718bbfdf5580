package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrNoGo says that the go command is missing.
var ErrNoGo = errors.New("the go command was not found in PATH; install Go 1.26 or later (https://go.dev/dl)")

// Logf receives progress lines.
type Logf func(format string, args ...any)

// target is one binary of a member.
type target struct {
	name    string // file name
	label   string // what progress lines call it
	dir     string // module folder, relative to e2e
	pkg     string
	modfile string // another than go.mod
	verb    string // "test" compiles a package's test; default "build"
	ldflags string
	links   []string // other names of the same binary
	hint    string   // how long a cold build takes
}

func targets() []target {
	return []target{
		{
			name:    "kubernetes",
			label:   "kubernetes " + KubernetesVersion + " (kube-apiserver, kube-controller-manager, kube-scheduler, kubectl)",
			dir:     ".",
			pkg:     "./multicall",
			ldflags: versionFlags(KubernetesVersion),
			links:   []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"},
			hint:    "about 6 minutes the first time on 2 cores",
		},
		{name: "etcd", label: "etcd", dir: ".", pkg: "go.etcd.io/etcd/server/v3", hint: "about half a minute"},
		{name: "kwok", label: "kwok", dir: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", hint: "about a minute"},
	}
}

func metricsTarget() target {
	return target{
		name: "metrics-server", label: "metrics-server", dir: "metricsserver",
		pkg: "sigs.k8s.io/metrics-server/cmd/metrics-server", hint: "about 3 minutes on 2 cores",
	}
}

func versionFlags(version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	values := map[string]string{
		"gitVersion": version, "gitMajor": parts[0], "gitMinor": parts[1], "gitTreeState": "clean",
	}
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, key := range []string{"gitVersion", "gitMajor", "gitMinor", "gitTreeState"} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, key, values[key]))
		}
	}
	return "-s -w " + strings.Join(flags, " ")
}

// Ensure builds what is missing of the member binaries and returns at once when
// nothing is. With metrics it includes metrics-server.
func Ensure(ctx context.Context, metrics bool, logf Logf) (Set, error) {
	set, err := Locate()
	if err != nil {
		return Set{}, err
	}
	want := targets()
	if metrics {
		want = append(want, metricsTarget())
	}
	if set.complete(want) {
		return set, nil
	}
	unlock, err := set.lock(ctx, logf)
	if err != nil {
		return Set{}, err
	}
	defer unlock()
	for _, t := range want {
		if err := set.build(ctx, t, logf); err != nil {
			return Set{}, err
		}
	}
	if err := set.copyKwokConfig(ctx); err != nil {
		return Set{}, err
	}
	return set, nil
}

func (s Set) complete(want []target) bool {
	for _, t := range want {
		for _, name := range append([]string{t.name}, t.links...) {
			if _, err := os.Stat(s.Path(name)); err != nil {
				return false
			}
		}
	}
	_, err := os.Stat(s.StagesDir())
	return err == nil
}

func (s Set) build(ctx context.Context, t target, logf Logf) error {
	out := s.Path(t.name)
	if _, err := os.Stat(out); err != nil {
		args := []string{"build", "-buildvcs=false"}
		if t.verb == "test" {
			args = []string{"test", "-c", "-buildvcs=false"}
		}
		if t.modfile != "" {
			args = append(args, "-modfile", t.modfile)
		}
		if t.ldflags != "" {
			args = append(args, "-ldflags", t.ldflags)
		}
		err := goBuild(ctx, filepath.Join(s.Root, "e2e", t.dir), t.label, t.hint, append(args, "-o", partial(out), t.pkg), logf)
		if err != nil {
			removePartial(partial(out), logf)
			return err
		}
		if err := os.Rename(partial(out), out); err != nil {
			return fmt.Errorf("build of %s: %w", t.label, err)
		}
	}
	for _, link := range t.links {
		path := s.Path(link)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		// A dangling link of an interrupted run is replaced.
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link %s: %w", link, err)
		}
		if err := os.Symlink(t.name, path); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	return nil
}

func partial(out string) string { return fmt.Sprintf("%s.partial-%d", out, os.Getpid()) }

// goBuild runs the go command and says every ten seconds that it still does.
func goBuild(ctx context.Context, dir, label, hint string, args []string, logf Logf) error {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return ErrNoGo
	}
	cmd := exec.CommandContext(ctx, goCommand, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	// An interrupt must end the compilers as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	stop := progress(label, hint, logf)
	err = cmd.Run()
	stop()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build of %s interrupted: %w", label, ctx.Err())
		}
		return fmt.Errorf("build of %s: %w\n%s", label, err, lastLines(output.String(), 30))
	}
	return nil
}

func removePartial(path string, logf Logf) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		logf("could not remove %s: %v", path, err)
	}
}

// progress prints a line when the work has taken ten seconds and every ten
// seconds after that; the returned function ends it.
func progress(label, hint string, logf Logf) func() {
	start := time.Now()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				if took := time.Since(start); took > 5*time.Second {
					logf("built %s in %s", label, took.Round(time.Second))
				}
				return
			case <-ticker.C:
				line := fmt.Sprintf("building %s: %s", label, time.Since(start).Round(time.Second))
				if hint != "" {
					line += "; " + hint
				}
				logf("%s", line)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// lock takes the folder for this process. The kernel drops it with the process,
// so an interrupted builder leaves nothing to clean up.
func (s Set) lock(ctx context.Context, logf Logf) (func(), error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("artifacts folder: %w", err)
	}
	return lockFile(ctx, filepath.Join(s.Dir, ".lock"), logf)
}

func lockFile(ctx context.Context, path string, logf Logf) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	start, said := time.Now(), false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !said && time.Since(start) > time.Second {
			logf("another process builds into %s; waiting for it", filepath.Dir(path))
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, ctx.Err()), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// kwokConfigFiles are the parts of kwok's module that members are configured
// with: how nodes and Pods live, and the kubelet metrics they show.
var kwokConfigFiles = map[string]string{
	"kustomize/stage/node/fast/node-initialize.yaml":     "node-initialize.yaml",
	"kustomize/stage/pod/fast/pod-ready.yaml":            "pod-ready.yaml",
	"kustomize/stage/pod/fast/pod-complete.yaml":         "pod-complete.yaml",
	"kustomize/stage/pod/fast/pod-delete.yaml":           "pod-delete.yaml",
	"kustomize/metrics/resource/metrics-resource.yaml":   "metrics-resource.yaml",
	"kustomize/metrics/usage/usage-from-annotation.yaml": "usage-from-annotation.yaml",
	"kustomize/stage/volume/fast/pv-bind.yaml":           "volume-pv-bind.yaml",
	"kustomize/stage/volume/fast/pv-delete.yaml":         "volume-pv-delete.yaml",
	"kustomize/stage/volume/fast/pvc-provision.yaml":     "volume-pvc-provision.yaml",
	"kustomize/stage/volume/fast/pvc-delete.yaml":        "volume-pvc-delete.yaml",
}

func (s Set) copyKwokConfig(ctx context.Context) error {
	if _, err := os.Stat(s.StagesDir()); err == nil {
		return nil
	}
	module, err := moduleFolder(ctx, filepath.Join(s.Root, "e2e", "kwok"), "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	temp := partial(s.StagesDir())
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return fmt.Errorf("kwok config: %w", err)
	}
	for from, to := range kwokConfigFiles {
		data, err := os.ReadFile(filepath.Join(module, from))
		if err != nil {
			return fmt.Errorf("kwok config: %w", err)
		}
		if err := os.WriteFile(filepath.Join(temp, to), data, 0o644); err != nil {
			return fmt.Errorf("kwok config: %w", err)
		}
	}
	if err := os.Rename(temp, s.StagesDir()); err != nil {
		return fmt.Errorf("kwok config: %w", err)
	}
	return nil
}

// EnsureProduct builds the product's binaries from the working tree: those that
// are named, or all.
func (s Set) EnsureProduct(ctx context.Context, logf Logf, names ...string) error {
	if len(names) == 0 {
		names = []string{"multicluster-apiserver", "cluster-gateway"}
	}
	if err := os.MkdirAll(s.ProductDir, 0o755); err != nil {
		return fmt.Errorf("product folder: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(s.ProductDir, ".lock"), logf)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		if err := s.buildProduct(ctx, name, logf); err != nil {
			return err
		}
	}
	return nil
}

// buildProduct lets the go command see its last output, so that an unchanged
// tree is not linked again, and copies it only when its content is new: a
// program that runs keeps its file, and the file's time says whether it is out
// of date. The time of go's output says nothing, since go touches it each time.
func (s Set) buildProduct(ctx context.Context, name string, logf Logf) error {
	staging, out := filepath.Join(s.ProductDir, ".build-"+name), s.Product(name)
	args := []string{"build", "-buildvcs=false", "-ldflags", versionFlags(KubernetesVersion), "-o", staging, "./cmd/" + name}
	if err := goBuild(ctx, s.Root, name, "about 4 minutes the first time on 2 cores", args, logf); err != nil {
		return err
	}
	if err := replaceIfNew(staging, out, logf); err != nil {
		return fmt.Errorf("build of %s: %w", name, err)
	}
	return nil
}

// replaceIfNew puts a copy of from in place of to, unless they are equal.
func replaceIfNew(from, to string, logf Logf) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if info, err := os.Stat(to); err == nil && info.Size() == int64(len(data)) {
		if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, data) {
			return nil
		}
	}
	temp := partial(to)
	err = os.WriteFile(temp, data, 0o755)
	if err == nil {
		err = os.Rename(temp, to)
	}
	if err != nil {
		removePartial(temp, logf)
	}
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
