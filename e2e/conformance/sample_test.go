package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// sampleLimit bounds the sample on 2 cores, the start of the clusters included.
const sampleLimit = 5 * time.Minute

// Kubernetes' own specs pass through the endpoint over three members.
func TestSampleThroughTheEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters")
	}
	set, err := artifacts.Ensure(t.Context(), false, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	suite, err := set.EnsureSuite(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.EnsureProduct(t.Context(), t.Logf); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(sampleLimit)
	clusters, err := StartEndpoint(t.Context(), t.TempDir(), t.Logf)
	t.Cleanup(func() {
		if err := clusters.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	results := Results{}
	r := Run{Suite: suite, Kubectl: clusters.Kubectl(), Kubeconfig: clusters.Kubeconfig(), Dir: t.TempDir(), Procs: 4, Logf: t.Logf}
	if err := r.All(context.WithoutCancel(t.Context()), Sample(), results, until, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	verdict := results.Judge(Sample())
	t.Log(verdict)
	if !verdict.OK() {
		for _, name := range verdict.Failed {
			t.Errorf("%s: %s", name, results[name][0].Failure)
		}
		t.Fatal("not every spec passed")
	}
}
