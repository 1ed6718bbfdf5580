package clients

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A program in JavaScript lists, watches, keeps an informer and executes
// commands with @kubernetes/client-node as it comes from npm.
func TestJavaScriptClient(t *testing.T) {
	t.Parallel()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	modules, err := set.EnsureJavaScript(t.Context(), t.Logf)
	if errors.Is(err, artifacts.ErrNoNode) {
		t.Skipf("NOT RUN: the JavaScript client: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A module is found beside the program that imports it.
	dir := t.TempDir()
	program, err := os.ReadFile("javascript/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "client.mjs"), program, 0o600),
		os.Symlink(modules, filepath.Join(dir, "node_modules"))); err != nil {
		t.Fatal(err)
	}
	kubeconfig := world.System.Kubeconfig()
	ns := labtest.Namespace(t, kubeconfig)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res := labtest.Run(ctx, t, kubeconfig, "", "env", "NAMESPACE="+ns, "node", filepath.Join(dir, "client.mjs"))
	if res.Code != 0 || !strings.HasSuffix(strings.TrimSpace(res.Out), "PASSED") {
		t.Errorf("exit %d after %s\n%s%s", res.Code, res.Took, res.Out, res.Err)
	}
}
