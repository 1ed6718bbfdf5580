package spine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// churn changes a ConfigMap through the endpoint until it is stopped.
func churn(t testing.TB, ns string) (stop func()) {
	client := labtest.Client(t, world.System).CoreV1().ConfigMaps(ns)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if cm, err := client.Get(ctx, "churn", metav1.GetOptions{}); err == nil {
				cm.Data = map[string]string{"n": fmt.Sprint(i)}
				_, _ = client.Update(ctx, cm, metav1.UpdateOptions{}) // fails while the endpoint is down
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// A control plane whose etcd was restored from a backup one moment old writes
// nothing to any member until the restore is accepted, over restarts too; then
// it goes on, and what it does not know stays.
func TestRestore(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, duplicated+deployment("steady", 2)+deployment("doomed", 1)+"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: churn}\n", "-n", ns, "apply", "-f", "-")
	for _, m := range members() {
		awaitReplicas(t, m, ns, "steady", 2)
		awaitReplicas(t, m, ns, "doomed", 1)
	}
	etcd, backup := filepath.Join(world.System.DataDir(), "etcd"), filepath.Join(world.System.Dir(), "backup")
	stop(t, false)
	if err := os.RemoveAll(backup); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(backup, os.DirFS(etcd)); err != nil {
		t.Fatal(err)
	}
	restart(t)

	stopChurn := churn(t, ns)
	kubectl(t, deployment("late", 2), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "scale", "deployment/steady", "--replicas=3")
	kubectl(t, "", "-n", ns, "delete", "deployment/doomed", "--timeout=150s")
	for _, m := range members() {
		awaitReplicas(t, m, ns, "late", 2)
		awaitReplicas(t, m, ns, "steady", 3)
	}
	stop(t, true)
	if err := os.RemoveAll(etcd); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(etcd, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	var logs []labtest.AuditLog
	for _, m := range members() {
		logs = append(logs, labtest.MemberAudit(t, m))
	}
	restart(t)
	t.Run("stopped", func(t *testing.T) { nothingIsWritten(t, ns, logs) })
	stop(t, true)
	restart(t)
	t.Run("stopped after another restart", func(t *testing.T) { nothingIsWritten(t, ns, logs) })
	stopChurn()

	said := command(t, "restore", "accept")
	if !strings.Contains(said, "Accepted") {
		t.Errorf("restore accept says %q", said)
	}
	for _, m := range members() {
		awaitReplicas(t, m, ns, "steady", 4)
		awaitReplicas(t, m, ns, "doomed", 1)
		awaitCondition(t, m.Name(), "WritesAllowed", "True")
	}
	time.Sleep(3 * time.Second)
	for i, m := range members() {
		if _, err := getDeployment(t.Context(), t, m, ns, "late"); err != nil {
			t.Errorf("what was created after the backup, in %s: %v", m.Name(), err)
		}
		for _, w := range changes(t, logs[i]) {
			if strings.HasPrefix(w.Verb, "delete") {
				t.Errorf("deleted in %s: %s", m.Name(), w.RequestURI)
			}
		}
	}
	t.Run("orphans", func(t *testing.T) { orphansAreReported(t, ns) })
}

// nothingIsWritten while templates change.
func nothingIsWritten(t *testing.T, ns string, logs []labtest.AuditLog) {
	kubectl(t, "", "-n", ns, "scale", "deployment/steady", "--replicas=4")
	for _, m := range members() {
		awaitCondition(t, m.Name(), "WritesAllowed", "False ControlPlaneBehind")
	}
	time.Sleep(5 * time.Second)
	for i, m := range members() {
		if w := changes(t, logs[i]); len(w) > 0 {
			t.Errorf("a control plane that is behind wrote to %s: %s", m.Name(), describe(w))
		}
		d, err := getDeployment(t.Context(), t, m, ns, "steady")
		if err != nil || *d.Spec.Replicas != 3 {
			t.Errorf("the copy in %s: %v, %v", m.Name(), d, err)
		}
		if _, err := getDeployment(t.Context(), t, m, ns, "doomed"); !apierrors.IsNotFound(err) {
			t.Errorf("what was deleted after the backup, in %s: %v", m.Name(), err)
		}
	}
	status := command(t, "restore", "status")
	for _, want := range []string{"m1", "stopped", "restore accept"} {
		if !strings.Contains(status, want) {
			t.Errorf("restore status does not say %q:\n%s", want, status)
		}
	}
	awaitEvent(t, "ControlPlaneBehind")
}

// orphansAreReported: what is left of a lost future is listed.
func orphansAreReported(t *testing.T, ns string) {
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		said, err := world.System.Command(ctx, "orphans")
		if err != nil {
			return err
		}
		for _, m := range []string{"m1", "m2"} {
			if !strings.Contains(said, m+"  ") && !strings.Contains(said, m+" ") || !strings.Contains(said, ns+"/late") {
				return fmt.Errorf("orphans says:\n%s\nwant late in %s", said, m)
			}
		}
		return nil
	})
	awaitEvent(t, "Orphans")
	late := "apps/v1/Deployment/" + ns + "/late"
	command(t, "orphans", "delete", "--cluster", "m1", late)
	command(t, "orphans", "release", "--cluster", "m2", late)
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		if _, err := getDeployment(ctx, t, world.Member("m1"), ns, "late"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a deleted orphan: %w", err)
		}
		d, err := getDeployment(ctx, t, world.Member("m2"), ns, "late")
		if err != nil || d.Labels["isthmus.dev/managed"] != "" {
			return fmt.Errorf("a released orphan: %v, %w", d.Labels, err)
		}
		return nil
	})
	labtest.Eventually(t, within(60*time.Second), func(ctx context.Context) error {
		said, err := world.System.Command(ctx, "orphans")
		if err == nil && strings.Contains(said, ns) {
			err = fmt.Errorf("settled orphans are listed:\n%s", said)
		}
		return err
	})
}
