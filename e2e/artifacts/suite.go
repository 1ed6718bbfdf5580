package artifacts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Suite is Kubernetes' own end-to-end suite, compiled, with what runs it.
type Suite struct {
	// Program is the compiled suite, Ginkgo the runner of the same version.
	Program, Ginkgo string
	// Source is the folder of the module k8s.io/kubernetes.
	Source string
}

func suiteTargets() []target {
	return []target{
		{
			name: "e2e.test", label: "the end-to-end suite of kubernetes " + KubernetesVersion, verb: "test",
			dir: "conformance/suite", pkg: "k8s.io/kubernetes/test/e2e", ldflags: versionFlags(KubernetesVersion),
			hint: "about 7 minutes the first time on 2 cores",
		},
		{name: "ginkgo", label: "ginkgo", dir: "conformance/suite", pkg: "github.com/onsi/ginkgo/v2/ginkgo", hint: "about half a minute"},
	}
}

// EnsureSuite builds the suite unless it is there. It goes by the versions of
// its own module, so that a change of it builds no member again.
func (s Set) EnsureSuite(ctx context.Context, logf Logf) (Suite, error) {
	module := filepath.Join(s.Root, "e2e", "conformance", "suite")
	key, err := sourceKey(module)
	if err != nil {
		return Suite{}, err
	}
	s.Dir = filepath.Join(filepath.Dir(s.Dir), "suite-"+KubernetesVersion+"-"+key)
	source, err := moduleFolder(ctx, module, "k8s.io/kubernetes")
	if err != nil {
		return Suite{}, err
	}
	suite := Suite{Program: s.Path("e2e.test"), Ginkgo: s.Path("ginkgo"), Source: source}
	unlock, err := s.lock(ctx, logf)
	if err != nil {
		return Suite{}, err
	}
	defer unlock()
	for _, t := range suiteTargets() {
		if err := s.build(ctx, t, logf); err != nil {
			return Suite{}, err
		}
	}
	return suite, nil
}

// moduleFolder is where the go command keeps the sources of a dependency.
func moduleFolder(ctx context.Context, dir, module string) (string, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", ErrNoGo
	}
	cmd := exec.CommandContext(ctx, goCommand, "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
