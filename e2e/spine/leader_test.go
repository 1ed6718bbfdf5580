package spine

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// externalEtcd runs an etcd of its own until the end of the test.
func externalEtcd(t *testing.T) string {
	t.Helper()
	set, err := artifacts.Locate()
	if err != nil {
		t.Fatal(err)
	}
	url := func() string {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // only its number is wanted
		return "http://" + l.Addr().String()
	}
	client, peer, dir := url(), url(), t.TempDir()
	log, err := os.Create(filepath.Join(dir, "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), set.Path("etcd"), "--data-dir="+filepath.Join(dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--log-level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = log.Close() })
	return client
}

// mark is the fence in a member.
func mark(ctx context.Context, t testing.TB, m *lab.Member) (epoch int64, err error) {
	cm, err := labtest.Client(t, m).CoreV1().ConfigMaps(ourNamespace).Get(ctx, "isthmus-fence", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	var f struct {
		Epoch int64 `json:"epoch"`
	}
	return f.Epoch, json.Unmarshal([]byte(cm.Data["fence"]), &f)
}

// Two replicas on one etcd serve; one leads. A leader that stood still longer
// than its lease writes nothing when it wakes up.
func TestStaleLeader(t *testing.T) {
	etcd := externalEtcd(t)
	m3 := labtest.Member(t, lab.Options{Name: "m3"})
	first := labtest.System(t, lab.SystemOptions{Flags: []string{"--etcd-servers=" + etcd}}, m3)
	dir := t.TempDir()
	// Replicas share their authorities and the key of service-account tokens.
	if err := os.CopyFS(filepath.Join(dir, "data", "pki"), os.DirFS(filepath.Join(first.DataDir(), "pki"))); err != nil {
		t.Fatal(err)
	}
	second := labtest.System(t, lab.SystemOptions{Dir: dir, Flags: []string{"--etcd-servers=" + etcd}})
	labtest.MustKubectl(t, second.Kubeconfig(), deployment("web", 1), "apply", "-f", "-")
	awaitReplicas(t, m3, "default", "web", 1)
	before, err := mark(t.Context(), t, m3)
	if err != nil {
		t.Fatal(err)
	}
	if before < 1 {
		t.Fatalf("the first leader's epoch is %d", before)
	}

	var n atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	client := labtest.Client(t, second).AppsV1().Deployments("default")
	go func() { // churn that keeps the leader writing until it stops
		defer close(done)
		for ctx.Err() == nil {
			if d, err := client.Get(ctx, "web", metav1.GetOptions{}); err == nil {
				d.Annotations = map[string]string{"n": fmt.Sprint(n.Add(1))}
				_, _ = client.Update(ctx, d, metav1.UpdateOptions{}) // a conflict is tried again
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	time.Sleep(2 * time.Second)
	log := labtest.MemberAudit(t, m3)
	if err := first.Signal(endpoint, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		now, err := mark(ctx, t, m3)
		if err == nil && now <= before {
			err = fmt.Errorf("the epoch in the member is %d, as before", now)
		}
		return err
	})
	time.Sleep(2 * time.Second)
	if err := first.Signal(endpoint, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second)
	cancel()
	<-done
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		d, err := getDeployment(ctx, t, m3, "default", "web")
		if err == nil && d.Annotations["n"] == "" {
			err = fmt.Errorf("the copy has the annotations %v", d.Annotations)
		}
		return err
	})
	neverAfter(t, log, before)
	labtest.MustKubectl(t, second.Kubeconfig(), "", "get", "lease", "-n", ourNamespace, "isthmus-leader")
	foreignIsRefused(t, m3)
}

// neverAfter: no write of the old epoch comes after the first one of a new.
func neverAfter(t *testing.T, log labtest.AuditLog, old int64) {
	stale, newer := fmt.Sprintf("epoch/%d", old), 0
	of := 0
	for _, a := range log.Read(t) {
		if !a.Writes() || a.User.Username != labtest.ApplyUser || !strings.Contains(a.UserAgent, "isthmus-engine epoch/") {
			continue
		}
		if !strings.HasSuffix(a.UserAgent, stale) {
			newer++
			continue
		}
		of++
		if newer > 0 {
			t.Errorf("a write of the replaced leader after %d of its successor: %s %s", newer, a.Verb, a.RequestURI)
		}
	}
	if newer < 5 {
		t.Errorf("the successor has written %d times, the test shows nothing", newer)
	}
	t.Logf("%d writes of the replaced leader, then %d of its successor", of, newer)
}

// foreignIsRefused: a cluster of one control plane is not written to by
// another, until it is taken over.
func foreignIsRefused(t *testing.T, m3 *lab.Member) {
	if said := command(t, "join", "m3", "--member-kubeconfig", m3.Kubeconfig()); !strings.Contains(said, "another control plane") {
		t.Errorf("join says\n%s", said)
	}
	t.Cleanup(func() { command(t, "unjoin", "m3", "--force") })
	awaitCondition(t, "m3", "WritesAllowed", "False OtherControlPlane")
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, strings.ReplaceAll(duplicated, "[m1, m2]", "[m1, m3]")+deployment("web", 1), "-n", ns, "apply", "-f", "-")
	awaitReplicas(t, world.Member("m1"), ns, "web", 1) // the others are written to
	time.Sleep(3 * time.Second)
	if _, err := getDeployment(t.Context(), t, m3, ns, "web"); err == nil {
		t.Error("a cluster of another control plane was written to")
	}
	if said := command(t, "restore", "status"); !strings.Contains(said, "take-over m3") {
		t.Errorf("restore status says\n%s", said)
	}
	command(t, "restore", "accept", "--take-over", "m3")
	awaitReplicas(t, m3, ns, "web", 1)
	awaitCondition(t, "m3", "WritesAllowed", "True")
}

// Members go on when the endpoint is down, and nothing is written because it
// comes back.
func TestMembersGoOn(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, duplicated+deployment("web", 2), "-n", ns, "apply", "-f", "-")
	for _, m := range members() {
		awaitReplicas(t, m, ns, "web", 2)
	}
	time.Sleep(2 * time.Second)
	var logs []labtest.AuditLog
	for _, m := range members() {
		logs = append(logs, labtest.MemberAudit(t, m))
	}
	stop(t, true)
	for _, m := range members() {
		labtest.MustKubectl(t, m.Kubeconfig(), "", "-n", ns, "delete", "pods", "-l", "app=web", "--timeout=150s")
		labtest.MustKubectl(t, m.Kubeconfig(), "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	}
	restart(t)
	for _, m := range members() {
		awaitCondition(t, m.Name(), "WritesAllowed", "True")
	}
	time.Sleep(4 * time.Second)
	for i, m := range members() {
		for _, w := range changes(t, logs[i]) {
			if w.ObjectRef.Namespace == ns {
				t.Errorf("the restart wrote to %s: %s %s", m.Name(), w.Verb, w.RequestURI)
			}
		}
	}
}
