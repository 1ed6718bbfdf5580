package journey

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// One binary, one cluster or many: only KUBECONFIG differs. Its informers start
// by watch-list, and client-go itself compares what they got with an exact LIST
// and panics at a difference.
func TestClientProgramUnchanged(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "clientprogram")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/isthmus-dev/isthmus/e2e/clientprogram")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, kubeconfig := range map[string]string{
		"plain": world.plain.Kubeconfig(), "endpoint": world.System.Kubeconfig(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, "-namespace", labtest.NamespaceName(t))
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBE_FEATURE_WatchListClient=true",
				"KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true")
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What is wrong with the flags is said in one sentence, before anything is
// started, with exit code 1; versions name the product and what it speaks.
func TestFlagsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, taken, err := net.SplitHostPort(world.System.Address())
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	for want, flags := range map[string][]string{
		"--secure-port 99999":               {"--data-dir", data, "--secure-port", "99999"},
		"unknown flag: --no-such":           {"--data-dir", data, "--no-such"},
		"--data-dir " + file:                {"--data-dir", file},
		"another process listens there":     {"--data-dir", data, "--bind-address", "127.0.0.1", "--secure-port", taken},
		"--tls-cert-file " + file:           {"--data-dir", data, "--tls-cert-file", file, "--tls-private-key-file", file},
		"no-such: there is no such Cluster": {"unjoin", "no-such", "--kubeconfig", world.System.Kubeconfig()},
	} {
		_, err := world.System.Command(t.Context(), flags...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v: %v, want exit code 1", flags, err)
			continue
		}
		var said []string
		for line := range strings.Lines(err.Error()) {
			if strings.HasPrefix(line, "Error: ") {
				said = append(said, line)
			}
		}
		if len(said) != 1 || !strings.Contains(said[0], want) {
			t.Errorf("%v: says %q, want one sentence about %q: %v", flags, said, want, err)
		}
		if _, err := os.Stat(filepath.Join(data, "etcd", "data")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%v: the store was started: %v", flags, err)
		}
	}
	for _, args := range [][]string{{"--version"}, {"version"}} {
		if out, err := world.System.Command(t.Context(), args...); err != nil || !strings.HasPrefix(out, "multicluster-apiserver ") || !strings.Contains(out, "(Kubernetes v1.") {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
	if out, err := world.System.Command(t.Context(), "unjoin", "no-such", "--ignore-not-found", "--kubeconfig", world.System.Kubeconfig()); err != nil || !strings.Contains(out, "nothing to do") {
		t.Errorf("unjoin --ignore-not-found: %q, %v", out, err)
	}
	if out := labtest.MustKubectl(t, world.System.Kubeconfig(), "", "version"); !strings.Contains(out, "Server Version: v1.") {
		t.Errorf("kubectl version: %s", out)
	}
}
