package outage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// kill ends a member's API until revive, at the latest until the end of the test.
func kill(t testing.TB, m *lab.Member) (revive func()) {
	t.Helper()
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	dead := true
	revive = func() {
		if !dead {
			return
		}
		dead = false
		ctx, cancel := context.WithTimeout(context.Background(), within(time.Minute))
		defer cancel()
		if err := m.Restart(ctx); err != nil {
			t.Errorf("restart %s: %v", m.Name(), err)
		}
	}
	t.Cleanup(revive)
	return revive
}

// command runs a subcommand of the endpoint's program.
func command(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(2*time.Minute))
	defer cancel()
	out, err := world.System.Command(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// damageKept overwrites what the endpoint has kept of its Pods.
func damageKept(t testing.TB) {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(world.System.DataDir(), "member-cache", "pods.v1.", "base-*"))
	if err != nil || len(kept) == 0 {
		t.Fatalf("nothing is kept: %v", err)
	}
	for _, f := range kept {
		if err := os.WriteFile(f, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// After a restart of the endpoint with a member down a LIST fails rather than
// omit what the member holds, where what was kept of it cannot be read, until
// somebody declares it absent.
func TestRestartWithDeadMember(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "restart", world.m1, world.m2)
	runPod(t, world.m1, ns, "a")
	runPod(t, world.m2, ns, "b")
	served(t, 20*time.Second, ns, "b", "m2")
	pods := "/api/v1/namespaces/" + ns + "/pods"

	revive := kill(t, world.m2)
	started := time.Now()
	if err := world.System.Kill(endpoint); err != nil {
		t.Fatal(err)
	}
	damageKept(t)
	startEndpoint(t)
	if took := time.Since(started); took > within(35*time.Second) {
		t.Errorf("/readyz was green %s after the restart, want at most 35 s", took)
	}
	config := labtest.Config(t, world.System)
	for name, path := range map[string]string{"LIST": pods, "LIST of all": "/api/v1/pods", "WatchList": pods + "?" + watchListQuery} {
		ctx, cancel := context.WithTimeout(t.Context(), within(time.Minute))
		a, err := ask(ctx, config, path)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range []string{"m2", "multicluster-apiserver absent m2"} {
			if a.code != http.StatusServiceUnavailable || !strings.Contains(string(a.body), want) {
				t.Errorf("%s answers %d %s, want 503 with %q", name, a.code, a.body, want)
			}
		}
		t.Logf("%s answered %d after %s", name, a.code, a.took.Round(time.Millisecond))
	}
	if a := promptly(t, config, pods+"/a"); a.code != http.StatusOK {
		t.Errorf("GET of a Pod of m1 answers %d", a.code)
	}

	undo := func() { command(t, "absent", "m2", "--undo") }
	t.Cleanup(undo)
	command(t, "absent", "m2")
	labtest.Eventually(t, within(10*time.Second), func(ctx context.Context) error {
		a, err := ask(ctx, config, pods)
		if err != nil {
			return err
		}
		if a.code != http.StatusOK || !a.warns("m2") {
			return fmt.Errorf("a list after absent m2 answers %d, warnings %q: %s", a.code, a.warnings, a.body)
		}
		if _, items := versions(t, a.body); items["a"] == 0 || len(items) != 1 {
			return fmt.Errorf("a list after absent m2 has %v, want a", items)
		}
		return nil
	})
	rv, _ := versions(t, mustAsk(t, config, pods).body)
	open := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, rv))

	revive()
	undo()
	open.await(t, within(time.Minute), "ADDED b when m2 is back", eventOf("ADDED", "b"))
	served(t, 5*time.Second, ns, "b", "m2")
	awaitLive(t, "m1", "m2")
}

// After kill -9 the endpoint serves what it had at once, a dead member's objects
// included, and watches of before go on: nothing is missed and nothing is read
// anew.
func TestWarmRestart(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "warm", world.m1, world.m2)
	runPod(t, world.m1, ns, "a")
	runPod(t, world.m1, ns, "gone")
	runPod(t, world.m2, ns, "b")
	for name, m := range map[string]string{"a": "m1", "gone": "m1", "b": "m2"} {
		served(t, 20*time.Second, ns, name, m)
	}
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	labtest.Eventually(t, within(20*time.Second), func(context.Context) error {
		kept, err := filepath.Glob(filepath.Join(world.System.DataDir(), "member-cache", "pods.v1.", "base-*"))
		if err == nil && len(kept) == 0 {
			err = errors.New("nothing is kept yet")
		}
		return err
	})
	old, _ := versions(t, mustAsk(t, config, pods).body)
	label(t, world.System, ns, "a", 1) // the log on disk has this, the state has not
	rv, before := versions(t, mustAsk(t, config, pods).body)

	revive := kill(t, world.m2)
	if err := world.System.Kill(endpoint); err != nil {
		t.Fatal(err)
	}
	if err := labtest.Client(t, world.m1).CoreV1().Pods(ns).Delete(t.Context(), "gone", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	runPod(t, world.m1, ns, "meanwhile")
	started := time.Now()
	startEndpoint(t)
	config = labtest.Config(t, world.System)
	a := mustAsk(t, config, pods)
	t.Logf("a list is answered %s after the start: %d, warnings %q", time.Since(started).Round(time.Millisecond), a.code, a.warnings)
	if _, items := versions(t, a.body); a.code != http.StatusOK || !a.warns("m2") || items["b"] != before["b"] || items["a"] != before["a"] {
		t.Errorf("the list answers %d with %v, warnings %q; before it had %v", a.code, items, a.warnings, before)
	}
	for _, from := range []uint64{old, rv} {
		s := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, from))
		if from == old {
			s.await(t, within(10*time.Second), "MODIFIED a of before", eventOf("MODIFIED", "a"))
		}
		s.await(t, within(20*time.Second), "DELETED gone", eventOf("DELETED", "gone"))
		s = mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, from))
		s.await(t, within(20*time.Second), "ADDED meanwhile", eventOf("ADDED", "meanwhile"))
	}
	revive()
	awaitLive(t, "m1", "m2")
	// m2 has restarted as well, and may not know the past any more.
	if n := relists(t, "m1", "pods"); n != 0 {
		t.Errorf("Pods of m1 were read anew %d times after the restart", n)
	}
}

// relists says how often the feed of a resource has read its member anew.
func relists(t testing.TB, cluster, resource string) (sum int) {
	t.Helper()
	for line := range strings.Lines(string(mustAsk(t, labtest.Config(t, world.System), "/metrics").body)) {
		if strings.HasPrefix(line, "isthmus_cache_feed_relists_total{") && strings.Contains(line, `cluster="`+cluster+`"`) && strings.Contains(line, `resource="`+resource+`"`) {
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}

// Numbers only grow, over a restart too, and a watch from any of them says
// something.
func TestResourceVersionsNeverGoBack(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "versions", world.m1, world.m2)
	runPod(t, world.m1, ns, "a")
	runPod(t, world.m2, ns, "b")
	served(t, 20*time.Second, ns, "b", "m2")
	served(t, 20*time.Second, ns, "a", "m1")
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	old, _ := versions(t, mustAsk(t, config, pods).body)
	highest := old
	equalListsHaveEqualVersions(t, config)
	open := mustWatch(t, config, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", pods, old))
	for i := range 20 {
		highest = max(highest, label(t, world.m1, ns, "a", i), label(t, world.System, ns, "b", i))
	}
	last := map[string]bool{}
	open.await(t, within(10*time.Second), "the last changes of both", func(e seenEvent) bool {
		highest = max(highest, e.rv(t))
		if e.Object.Metadata.Labels["step"] == "19" {
			last[e.Object.Metadata.Name] = true
		}
		return len(last) == 2
	})
	list, items := versions(t, mustAsk(t, config, pods).body)
	for _, rv := range items {
		highest = max(highest, rv)
	}
	highest = max(highest, list)

	restartEndpoint(t)
	awaitLive(t, "m1", "m2")
	fresh, items := versions(t, mustAsk(t, config, pods).body)
	if fresh <= highest {
		t.Errorf("after a restart a list has the resourceVersion %d; %d was given out before", fresh, highest)
	}
	if len(items) != 2 {
		t.Errorf("after a restart the list has %v, want a and b", items)
	}
	answer, err := labtest.Client(t, world.System).CoreV1().Pods(ns).Patch(t.Context(), "a", types.MergePatchType, stepPatch(100), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rv := rvOf(t, answer); rv <= fresh {
		t.Errorf("a write after the restart has the resourceVersion %d, the list before it %d", rv, fresh)
	}
	for _, from := range []uint64{old, highest - 1, highest, fresh} {
		t.Run(fmt.Sprintf("from %d", from), func(t *testing.T) { saysSomething(t, ns, from) })
	}
	t.Run("future", func(t *testing.T) { futureIsRefused(t, ns, fresh) })
}

func stepPatch(i int) []byte { return fmt.Appendf(nil, `{"metadata":{"labels":{"step":"%d"}}}`, i) }

// label patches a Pod and returns the resourceVersion that the endpoint gave, 0
// for a write in a member.
func label(t testing.TB, cluster any, ns, name string, step int) uint64 {
	t.Helper()
	switch c := cluster.(type) {
	case *lab.Member:
		if _, err := labtest.Client(t, c).CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, stepPatch(step), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		return 0
	case *lab.System:
		pod, err := labtest.Client(t, c).CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, stepPatch(step), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return rvOf(t, pod)
	}
	t.Fatalf("%T is no cluster", cluster)
	return 0
}

func rvOf(t testing.TB, pod *corev1.Pod) uint64 {
	t.Helper()
	return seenEvent{Object: struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Code     int               `json:"code"`
		Message  string            `json:"message"`
	}{Metadata: pod.ObjectMeta}}.rv(t)
}

// saysSomething watches from a resourceVersion while something changes: the
// change comes, or 410.
func saysSomething(t *testing.T, ns string, from uint64) {
	config := labtest.Config(t, world.System)
	s, err := watch(t.Context(), config, fmt.Sprintf("/api/v1/namespaces/%s/pods?watch=1&resourceVersion=%d", ns, from))
	var no *refused
	if errors.As(err, &no) && no.code == http.StatusGone {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	step := time.Now().UnixMilli() % 1_000_000
	label(t, world.m1, ns, "a", int(step))
	timeout := time.After(within(5 * time.Second))
	for {
		select {
		case e, ok := <-s.events:
			switch {
			case !ok:
				t.Fatal("the watch ended without an event")
			case e.Type == "ERROR" && e.Object.Code == http.StatusGone:
				return
			case e.Type == "ERROR":
				t.Fatalf("the watch says %d %s", e.Object.Code, e.Object.Message)
			case e.rv(t) <= from:
				t.Fatalf("an event of %d on a watch from %d", e.rv(t), from)
			case e.Object.Metadata.Labels["step"] == fmt.Sprint(step):
				return
			}
		case <-timeout:
			t.Fatal("silence: neither the change nor 410")
		}
	}
}

// futureIsRefused: an hour ahead of the log there will be nothing for an hour.
func futureIsRefused(t *testing.T, ns string, now uint64) {
	const counterBits = 20
	ahead := now + uint64(time.Hour.Milliseconds())<<counterBits
	for _, query := range []string{"watch=1&", "", "resourceVersionMatch=NotOlderThan&"} {
		ctx, cancel := context.WithTimeout(t.Context(), within(20*time.Second))
		a, err := ask(ctx, labtest.Config(t, world.System), fmt.Sprintf("/api/v1/namespaces/%s/pods?%sresourceVersion=%d", ns, query, ahead))
		cancel()
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		if a.code != http.StatusGatewayTimeout || !strings.Contains(string(a.body), "ResourceVersionTooLarge") {
			t.Errorf("%q from the future answers %d %s, want 504 ResourceVersionTooLarge", query, a.code, a.body)
		}
		if a.took < 2*time.Second || a.took > within(6*time.Second) {
			t.Errorf("%q from the future took %s, want about 3 s", query, a.took)
		}
	}
}

// From the first answer after a restart a list omits nothing: an informer would
// read the omission as deletions.
func TestRestartOmitsNothing(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "omits", world.m1, world.m2)
	for i, m := range []*lab.Member{world.m1, world.m2} {
		runPod(t, m, ns, fmt.Sprintf("pod-%d", i))
		served(t, 20*time.Second, ns, fmt.Sprintf("pod-%d", i), m.Name())
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		answers := 0
		wg.Go(func() {
			for ctx.Err() == nil {
				answers += asksForAll(ctx, t, ns, 2)
			}
		})
		restartEndpoint(t)
		awaitLive(t, "m1", "m2")
		cancel()
		wg.Wait()
		if answers == 0 {
			t.Error("no list was answered while the endpoint came back")
		}
	}
}

// asksForAll counts the good answers to a list and to a GET of each Pod; what is
// answered must be whole.
func asksForAll(ctx context.Context, t *testing.T, ns string, want int) int {
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	good := 0
	for _, query := range []string{"", "?resourceVersion=0", "?labelSelector=isthmus.dev/cluster%3Dm2"} {
		a, err := ask(ctx, config, pods+query)
		if err != nil || a.code != http.StatusOK {
			continue
		}
		good++
		_, items := versions(t, a.body)
		expected := want
		if strings.Contains(query, "m2") {
			expected = 1
		}
		if len(items) != expected {
			t.Errorf("LIST %s: %v, want %d Pods", query, items, expected)
		}
	}
	for i := range want {
		a, err := ask(ctx, config, fmt.Sprintf("%s/pod-%d", pods, i))
		if err == nil && a.code == http.StatusNotFound {
			t.Errorf("GET of pod-%d: 404", i)
		}
	}
	return good
}
