package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoNode says that JavaScript cannot be run here.
var ErrNoNode = errors.New("node and npm are not in PATH (Debian, Ubuntu: apt-get install -y nodejs npm; Fedora, RHEL: dnf install -y nodejs npm)")

// clientTargets are clients, and suites of clients, that are not the product's.
func clientTargets() map[string]target {
	const suite, runtime = "clients/suite", "sigs.k8s.io/controller-runtime/pkg/"
	return map[string]target{
		"helm": {
			name: "helm", label: "helm", dir: suite, pkg: "helm.sh/helm/v4/cmd/helm", ldflags: versionFlags(KubernetesVersion),
			hint: "about 4 minutes the first time on 2 cores",
		},
		"cache": {
			name: "controller-runtime-cache.test", label: "the tests of controller-runtime's cache", verb: "test",
			dir: suite, pkg: runtime + "cache", hint: "about 2 minutes the first time",
		},
		"client": {
			name: "controller-runtime-client.test", label: "the tests of controller-runtime's client", verb: "test",
			dir: suite, pkg: runtime + "client", hint: "about a minute the first time",
		},
	}
}

// ClientPath is where a client of that name lies once it is built: "helm".
func (s Set) ClientPath(name string) (string, error) {
	key, err := sourceKey(filepath.Join(s.Root, "e2e", "clients", "suite"))
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(s.Dir), "clients-"+key, clientTargets()[name].name), nil
}

// EnsureClient builds a client unless it is there, and returns its path. It goes
// by the versions of its own module, so that a change of it builds no member
// again.
func (s Set) EnsureClient(ctx context.Context, name string, logf Logf) (string, error) {
	t, ok := clientTargets()[name]
	if !ok {
		return "", fmt.Errorf("no client %q is known", name)
	}
	path, err := s.ClientPath(name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	s.Dir = filepath.Dir(path)
	unlock, err := s.lock(ctx, logf)
	if err != nil {
		return "", err
	}
	defer unlock()
	return path, s.build(ctx, t, logf)
}

// ClientSource is the folder of a module that clients are built from.
func (s Set) ClientSource(ctx context.Context, module string) (string, error) {
	return moduleFolder(ctx, filepath.Join(s.Root, "e2e", "clients", "suite"), module)
}

// EnsureJavaScript installs what the programs of e2e/clients/javascript import,
// by its lock file, and returns the folder node_modules.
func (s Set) EnsureJavaScript(ctx context.Context, logf Logf) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", ErrNoNode
	}
	if _, err := exec.LookPath("node"); err != nil {
		return "", ErrNoNode
	}
	source := filepath.Join(s.Root, "e2e", "clients", "javascript")
	key, err := sourceKey(source)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(s.Dir), "javascript-"+key)
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	s.Dir = filepath.Dir(s.Dir)
	unlock, err := s.lock(ctx, logf)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(modules); err == nil {
		return modules, nil // by another process, meanwhile
	}
	return modules, installJavaScript(ctx, npm, source, dir, logf)
}

func installJavaScript(ctx context.Context, npm, source, dir string, logf Logf) error {
	temp := partial(dir)
	if err := os.CopyFS(temp, os.DirFS(source)); err != nil {
		return fmt.Errorf("the JavaScript client: %w", err)
	}
	stop := progress("@kubernetes/client-node", "half a minute", logf)
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = temp
	out, err := cmd.CombinedOutput()
	stop()
	if err != nil {
		return errors.Join(fmt.Errorf("npm ci: %w\n%s", err, lastLines(string(out), 30)), os.RemoveAll(temp))
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("the JavaScript client: %w", err)
	}
	return nil
}
