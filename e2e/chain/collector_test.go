package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const owned = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

// A garbage collector that stands outside, as an orphan cleaner does, finds an
// owner for everything that is served, in its cluster or in the control plane,
// and collects nothing.
func TestGarbageCollectorFindsOwners(t *testing.T) {
	ns := namespace(t)
	admin := world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, owned, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), strings.ReplaceAll(owned, "web", "own"), "-n", "default", "apply", "-f", "-")
	defer labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "-n", "default", "delete", "deployment", "own")
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "-n", "default", "rollout", "status", "deployment/own", "--timeout=150s")
	before := uids(t)
	log := collectGarbage(t, admin)
	after := uids(t)
	for uid, name := range before {
		if _, ok := after[uid]; !ok {
			t.Errorf("%s was collected", name)
		}
	}
	for _, line := range strings.Split(log, "\n") {
		if strings.Contains(line, "Deleting item") {
			t.Errorf("collected: %s", line)
		}
	}
	if !strings.Contains(log, "all resource monitors have synced") && !strings.Contains(log, "Proceeding to collect garbage") {
		t.Errorf("the garbage collector did not work:\n%.3000s", log)
	}
}

// uids of all Pods and ReplicaSets that are served and stay.
func uids(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	pods, errPods := endpoint(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	sets, errSets := endpoint(t).AppsV1().ReplicaSets("").List(t.Context(), metav1.ListOptions{})
	if err := errors.Join(errPods, errSets); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if len(p.OwnerReferences) > 0 && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			out[string(p.UID)] = "Pod " + p.Namespace + "/" + p.Name
		}
	}
	for _, s := range sets.Items {
		out[string(s.UID)] = "ReplicaSet " + s.Namespace + "/" + s.Name
	}
	if len(out) < 6 {
		t.Fatalf("too few objects to speak of: %v", out)
	}
	return out
}

// collectGarbage runs the real garbage collector over an API for a while and
// returns its log.
func collectGarbage(t *testing.T, kubeconfig string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "collector.log")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // read below
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, world.Member("m1").Artifacts().Path("kube-controller-manager"),
		"--kubeconfig="+kubeconfig, "--controllers=garbage-collector-controller", "--leader-elect=false",
		"--secure-port=0", "--v=2", "--use-service-account-credentials=false")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	labtest.Eventually(t, 45*time.Second, func(context.Context) error {
		if log := read(); !strings.Contains(log, "Proceeding to collect garbage") {
			return fmt.Errorf("the garbage collector does not come up: %.500s", log[max(0, len(log)-500):])
		}
		return nil
	})
	time.Sleep(10 * time.Second) // its first pass over everything
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && ctx.Err() != nil {
		t.Fatal(err)
	}
	return read()
}
