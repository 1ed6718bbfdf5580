package membercache

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
)

// apiserver finds the process of a lab member's kube-apiserver beside its
// kubeconfig.
func apiserver(t *testing.T, name cache.ClusterName) int {
	t.Helper()
	for part := range strings.SplitSeq(os.Getenv("ISTHMUS_MEMBERS"), ",") {
		n, path, _ := strings.Cut(part, "=")
		if n != string(name) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "pids", "kube-apiserver.json"))
		if err != nil {
			t.Skipf("not a member of the lab: %v", err)
		}
		var process struct{ PID int }
		if err := json.Unmarshal(b, &process); err != nil || process.PID < 2 {
			t.Fatal(process, err)
		}
		return process.PID
	}
	t.Skipf("no member %s", name)
	return 0
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func bare(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// follow is a cache over all members, with a mirror of its Pods.
func follow(ctx context.Context, t *testing.T, configs map[cache.ClusterName]*rest.Config) (*Cache, cache.Collection, *cachetest.Mirror) {
	t.Helper()
	c := newTestCache(t)
	for i, name := range []cache.ClusterName{"m1", "m2"} {
		uid, err := feed.ClusterUID(ctx, configs[name])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetSource(Source{Name: name, UID: uid, Order: i + 1, Config: configs[name], EverSynced: true}); err != nil {
			t.Fatal(err)
		}
	}
	col, _ := c.Collection(Pods.GroupVersionResource)
	if err := c.AwaitLoaded(ctx, Pods.GroupVersionResource); err != nil {
		t.Fatal(err)
	}
	snap, err := col.Snapshot(ctx, cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := cachetest.NewMirror(ctx, col, snap)
	if err != nil {
		t.Fatal(err)
	}
	return c, col, mirror
}

// converge waits until the collection equals the members, and the mirror it.
func converge(ctx context.Context, t *testing.T, col cache.Collection, mirror *cachetest.Mirror, configs map[cache.ClusterName]*rest.Config) {
	t.Helper()
	if err := col.AwaitFresh(ctx); err != nil {
		t.Fatal(err)
	}
	compareWithMembers(t, col, configs)
	snap, err := col.Snapshot(ctx, cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	if err := mirror.CatchUp(ctx, snap.RV()); err != nil {
		t.Fatal(err)
	}
	content, err := cachetest.Read(col.Resource(), snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := mirror.Equal(content); err != nil {
		t.Error(err)
	}
}

// TestLiveKilled: an API server that dies and is started again by
// ISTHMUS_REVIVE, a shell command, is followed without a new list.
func TestLiveKilled(t *testing.T) {
	configs := members(t)
	revive := os.Getenv("ISTHMUS_REVIVE")
	if revive == "" {
		t.Skip("ISTHMUS_REVIVE says not how to start the member again")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, col, mirror := follow(ctx, t, configs)
	before := testutil.ToFloat64(c.counters.relists.WithLabelValues("m2", "pods"))
	if err := syscall.Kill(apiserver(t, "m2"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for len(col.Gaps()) == 0 && time.Since(start) < time.Minute {
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("gap after %s: %v", time.Since(start), col.Gaps())
	if out, err := exec.CommandContext(ctx, "sh", "-c", revive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	healed := time.Now()
	for len(col.Gaps()) > 0 && time.Since(healed) < 2*time.Minute {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("healed after %s", time.Since(healed))
	if _, err := client(t, configs["m2"]).CoreV1().Pods("default").Create(ctx, bare("live-"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	converge(ctx, t, col, mirror, configs)
	if after := testutil.ToFloat64(c.counters.relists.WithLabelValues("m2", "pods")); after != before {
		t.Errorf("read anew %g times", after-before)
	}
}

// TestLiveFrozen: a member that does not answer delays nobody, keeps its
// objects, is said to be stale, and comes back by difference.
func TestLiveFrozen(t *testing.T) {
	configs := members(t)
	pid := apiserver(t, "m2")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	_, col, mirror := follow(ctx, t, configs)
	before := col.Stats().Objects["m2"]
	stop(t, pid)
	start := time.Now()
	pod, err := client(t, configs["m1"]).CoreV1().Pods("default").Create(ctx, bare("live-"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rv, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if o, err := col.Observe(ctx, "m1", pod.Namespace, pod.Name, rv, nil); err != nil || o == nil || o.SourceRV < rv {
		t.Fatalf("%v, %v", o, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("an event of m1 took %s while m2 was frozen", d)
	}
	for len(col.Gaps()) == 0 && time.Since(start) < 2*time.Minute {
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("after %s: gaps %v", time.Since(start), col.Gaps())
	if gaps := col.Gaps(); len(gaps) != 1 || gaps[0].Cluster != "m2" || gaps[0].Kind != cache.Stale {
		t.Errorf("gaps %v", gaps)
	}
	if got := col.Stats().Objects["m2"]; got != before {
		t.Errorf("%d Pods of m2 are left of %d", got, before)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	made, err := client(t, configs["m2"]).CoreV1().Pods("default").Create(ctx, bare("live-"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for len(col.Gaps()) > 0 && time.Since(healed) < time.Minute {
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("healed after %s", time.Since(healed))
	if err := col.AwaitFresh(ctx); err != nil {
		t.Fatal(err)
	}
	if _, ok := col.FindSource("m2", made.Namespace, made.Name); !ok {
		t.Errorf("%s is missing", made.Name)
	}
	converge(ctx, t, col, mirror, configs)
}

func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}
