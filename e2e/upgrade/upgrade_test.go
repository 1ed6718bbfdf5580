// Package upgrade replaces the endpoint's program by a newer one under running
// informers, on the state that the older one has left:
//
//	git: the commit before -> program -> endpoint over m1, m2 -> informers
//	working tree           -> program -> the same endpoint    -> the same informers
//
// UPGRADE_FROM names another commit to begin with.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

// before builds the program of an earlier commit.
func before(t *testing.T) string {
	t.Helper()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	rev := os.Getenv("UPGRADE_FROM")
	if rev == "" {
		rev = "HEAD~1"
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", set.Root}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "--verify", "--quiet", rev+"^{commit}")
	if err != nil {
		t.Skipf("the repository has no commit %s: nothing to upgrade from", rev)
	}
	tree, binary := filepath.Join(t.TempDir(), "tree"), filepath.Join(t.TempDir(), "multicluster-apiserver")
	if out, err := git("worktree", "add", "--detach", tree, commit); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", "-C", set.Root, "worktree", "remove", "--force", tree)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "./cmd/multicluster-apiserver")
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	t.Logf("upgrading from %s", commit)
	return binary
}

// watched is what an informer over the endpoint has told.
type watched struct {
	mu      sync.Mutex
	store   cache.Store
	deleted map[types.UID]string
}

func watchPods(t *testing.T, system *lab.System, ns string) *watched {
	t.Helper()
	w := &watched{deleted: map[types.UID]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(labtest.Client(t, system), 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().Pods().Informer()
	w.store = informer.GetStore()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if p, ok := obj.(*corev1.Pod); ok {
			w.deleted[p.UID] = p.Name
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory.StartWithContext(ctx)
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	return w
}

// held are the Pods of the members: content by UID.
func held(ctx context.Context, t *testing.T, ns string, members ...*lab.Member) (map[types.UID]string, error) {
	out := map[types.UID]string{}
	for _, m := range members {
		list, err := labtest.Client(t, m).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			out[p.UID] = p.Name + " step=" + p.Labels["step"] + " " + string(p.Status.Phase)
		}
	}
	return out, nil
}

// agrees says whether the informer holds what the members hold.
func (w *watched) agrees(ctx context.Context, t *testing.T, ns string, members ...*lab.Member) error {
	want, err := held(ctx, t, ns, members...)
	if err != nil {
		return err
	}
	got := map[types.UID]string{}
	for _, obj := range w.store.List() {
		if p, ok := obj.(*corev1.Pod); ok {
			got[p.UID] = p.Name + " step=" + p.Labels["step"] + " " + string(p.Status.Phase)
		}
	}
	var errs []error
	for uid, text := range want {
		if got[uid] != text {
			errs = append(errs, fmt.Errorf("held %q, served %q", text, got[uid]))
		}
	}
	if len(got) != len(want) {
		errs = append(errs, fmt.Errorf("%d Pods held, %d served", len(want), len(got)))
	}
	return errors.Join(errs...)
}

// The program is replaced while informers run and Pods change: informers go on,
// nothing that lives is reported deleted or is deleted, and the new program
// works on what the old one has left.
func TestUpgradeUnderInformers(t *testing.T) {
	members := labtest.Members(t, 2)
	dir := t.TempDir()
	old := labtest.System(t, lab.SystemOptions{Dir: dir, Binary: before(t)}, members...)
	admin := old.Kubeconfig()
	ns := labtest.UniqueName(t, "upgrade") // it ends with the clusters
	labtest.MustKubectl(t, admin, "", "create", "namespace", ns)
	labtest.MustKubectl(t, admin, workload, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	w := watchPods(t, old, ns)
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error { return w.agrees(ctx, t, ns, members...) })
	living, err := held(t.Context(), t, ns, members...)
	if err != nil || len(living) != 6 {
		t.Fatalf("%d Pods: %v", len(living), err)
	}
	logs := []labtest.AuditLog{labtest.MemberAudit(t, members[0]), labtest.MemberAudit(t, members[1])}
	if err := old.StopProcess("multicluster-apiserver", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, members[1].Kubeconfig(), "", "-n", ns, "label", "pods", "--all", "step=meanwhile")
	system := labtest.System(t, lab.SystemOptions{Dir: dir})
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error { return w.agrees(ctx, t, ns, members...) })
	w.mu.Lock()
	for uid, name := range w.deleted {
		if _, lives := living[uid]; lives {
			t.Errorf("%s was reported deleted", name)
		}
	}
	w.mu.Unlock()
	for i, log := range logs {
		for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
			if a.Verb == "delete" && a.ObjectRef.Namespace == ns {
				t.Errorf("deleted in %s: %s", members[i].Name(), a.RequestURI)
			}
		}
	}
	now, err := held(t.Context(), t, ns, members...)
	if err != nil {
		t.Fatal(err)
	}
	for uid := range living {
		if _, ok := now[uid]; !ok {
			t.Errorf("%s was replaced", living[uid])
		}
	}
	labtest.MustKubectl(t, system.Kubeconfig(), "", "-n", ns, "scale", "deployment/web", "--replicas=8")
	labtest.MustKubectl(t, system.Kubeconfig(), "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		if err := w.agrees(ctx, t, ns, members...); err != nil {
			return err
		}
		if n := len(w.store.ListKeys()); n != 8 {
			return fmt.Errorf("%d Pods", n)
		}
		return nil
	})
}
