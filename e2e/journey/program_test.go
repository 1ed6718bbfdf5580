package journey

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
