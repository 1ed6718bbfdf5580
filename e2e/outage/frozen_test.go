package outage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// prompt is the longest that a read may take while a member is frozen.
const prompt = 2 * time.Second

// freeze stops a member's API until thaw, at the latest until the end of the test.
func freeze(t testing.TB, m *lab.Member) (thaw func()) {
	t.Helper()
	if err := m.Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw = func() {
		if !frozen {
			return
		}
		frozen = false
		if err := m.Thaw(); err != nil {
			t.Errorf("thaw %s: %v", m.Name(), err)
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// A member whose API hangs costs readers nothing but its freshness: reads are
// prompt, with a Warning once it is noticed; the other's events flow; what needs
// the member itself fails and names it; watches of before go on when it is back.
func TestFrozenMemberDelaysNobody(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "frozen", world.m1, world.m2)
	runPod(t, world.m1, ns, "a")
	runPod(t, world.m2, ns, "b")
	served(t, 20*time.Second, ns, "a", "m1")
	served(t, 20*time.Second, ns, "b", "m2")
	config := labtest.Config(t, world.System)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	rv, _ := versions(t, mustAsk(t, config, pods).body)
	before := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, rv))

	thaw := freeze(t, world.m2)
	noticed := time.Now()
	// Nobody knows of the outage yet: the first to ask finds out.
	frozenStream(t, ns, 5*time.Second, "exec", "b", "--", "true")
	frozenStream(t, ns, 5*time.Second, "logs", "b")
	labtest.Eventually(t, within(time.Minute), func(context.Context) error {
		if a := promptly(t, config, pods); !a.warns("m2") {
			return fmt.Errorf("a list has no Warning that names m2, only %q", a.warnings)
		}
		return nil
	})
	t.Logf("noticed after %s", time.Since(noticed).Round(time.Millisecond))

	t.Run("reads", func(t *testing.T) { frozenReads(t, config, ns) })
	t.Run("watches", func(t *testing.T) { frozenWatches(t, config, ns) })
	t.Run("streams", func(t *testing.T) {
		for _, command := range [][]string{{"logs", "b"}, {"exec", "b", "--", "true"}, {"logs", "b"}} {
			frozenStream(t, ns, prompt, command...)
		}
	})
	t.Run("goroutines", func(t *testing.T) { watchesLeaveNothing(t, config, pods) })

	created := time.Now()
	runPod(t, world.m1, ns, "live")
	event := before.await(t, within(5*time.Second), "ADDED live on the watch of before", eventOf("ADDED", "live"))
	t.Logf("the watch of before had m1's event after %s", event.at.Sub(created))

	thaw()
	runPod(t, world.m2, ns, "after")
	before.await(t, within(10*time.Second), "ADDED after, of the thawed member, on the watch of before", eventOf("ADDED", "after"))
	awaitLive(t, "m1", "m2")
}

// frozenStream wants a failure that names m2 within a time, kubectl's own tries
// included.
func frozenStream(t *testing.T, ns string, limit time.Duration, command ...string) {
	t.Helper()
	res := labtest.Kubectl(t, world.System.Kubeconfig(), "", append([]string{"-n", ns}, command...)...)
	if res.Code == 0 || !strings.Contains(res.Err, "m2") || res.Took > within(limit) {
		t.Errorf("kubectl %s of a Pod of the frozen member: exit %d after %s, %q; want a failure within %s that names m2", command[0], res.Code, res.Took, res.Err, within(limit))
	}
	t.Logf("kubectl %s failed after %s", command[0], res.Took.Round(time.Millisecond))
}

// promptly asks, and fails the test when the answer is late or no success.
func promptly(t testing.TB, config *rest.Config, path string) answer {
	t.Helper()
	a := mustAsk(t, config, path)
	if a.took > within(prompt) {
		t.Errorf("GET %s took %s", path, a.took)
	}
	return a
}

// mustAsk fails the test when the answer is no success.
func mustAsk(t testing.TB, config *rest.Config, path string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within(30*time.Second))
	defer cancel()
	a, err := ask(ctx, config, path)
	if err != nil {
		t.Fatal(err)
	}
	if a.code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, a.code, a.body)
	}
	return a
}

func frozenReads(t *testing.T, config *rest.Config, ns string) {
	pods := "/api/v1/namespaces/" + ns + "/pods"
	list := promptly(t, config, pods)
	if _, items := versions(t, list.body); items["a"] == 0 || items["b"] == 0 {
		t.Errorf("the list has %v, want a and the last known b", items)
	}
	if a := promptly(t, config, "/api/v1/pods"); !a.warns("m2") {
		t.Errorf("a list of all namespaces has no Warning that names m2, only %q", a.warnings)
	}
	promptly(t, config, pods+"/a")
	if a := promptly(t, config, pods+"/b"); !a.warns("m2") {
		t.Errorf("GET of a Pod of m2 has no Warning that names it, only %q", a.warnings)
	}
	for _, path := range []string{"/api/v1/nodes", "/api/v1/namespaces/" + ns + "/events"} {
		if a := promptly(t, config, path); !a.warns("m2") {
			t.Errorf("GET %s has no Warning that names m2, only %q", path, a.warnings)
		}
	}
	empty := promptly(t, config, pods+"?labelSelector=no%3Dsuch")
	if !strings.Contains(string(empty.body), `"items":[]`) {
		t.Errorf("a list without matches is %s, want items []", empty.body)
	}
	strict, err := ask(t.Context(), config, pods+"?consistency=strict")
	if err != nil {
		t.Fatal(err)
	}
	if strict.code != http.StatusServiceUnavailable || !strings.Contains(string(strict.body), "m2") {
		t.Errorf("consistency=strict answers %d %s, want 503 that names m2", strict.code, strict.body)
	}
	res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "get", "pods", "-A")
	if res.Code != 0 || res.Took > within(prompt) || !strings.Contains(res.Err, "Warning") || !strings.Contains(res.Err, "m2") {
		t.Errorf("kubectl get pods -A: exit %d after %s, %q; want success within 2 s and a Warning that names m2", res.Code, res.Took, res.Err)
	}
}

func frozenWatches(t *testing.T, config *rest.Config, ns string) {
	pods := "/api/v1/namespaces/" + ns + "/pods"
	rv, _ := versions(t, promptly(t, config, pods).body)
	plain := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, rv))
	if plain.headers > within(time.Second) {
		t.Errorf("a watch opened after %s", plain.headers)
	}
	started := time.Now()
	all := mustWatch(t, config, pods+"?"+watchListQuery)
	seen := map[string]bool{}
	all.await(t, within(prompt), "the end of a WatchList's initial events", func(e seenEvent) bool {
		seen[e.Object.Metadata.Name] = true
		return initialEnd(e)
	})
	if !seen["a"] || !seen["b"] {
		t.Errorf("a WatchList began with %v, want a and the last known b", seen)
	}
	if all.header.Get("Warning") == "" || !strings.Contains(strings.Join(all.header.Values("Warning"), " "), "m2") {
		t.Errorf("a WatchList has the Warnings %q, want one that names m2", all.header.Values("Warning"))
	}
	t.Logf("WatchList took %s", time.Since(started))

	if _, err := labtest.Client(t, world.m1).CoreV1().Pods(ns).Create(t.Context(), barePod(ns, "new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	for name, s := range map[string]*stream{"watch": plain, "WatchList": all} {
		event := s.await(t, within(10*time.Second), "ADDED new on the "+name, eventOf("ADDED", "new"))
		if late := event.at.Sub(created); late > within(time.Second) {
			t.Errorf("the %s had m1's event after %s", name, late)
		}
	}
}

// watchesLeaveNothing opens and closes watches and counts goroutines.
func watchesLeaveNothing(t *testing.T, config *rest.Config, path string) {
	const watches, slack = 200, 5
	// Connections are the client's to keep: it has its own, to close them.
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport}
	cycle := func(n int) {
		for range n {
			s, err := watchBy(t.Context(), client, config, path+"?"+watchListQuery)
			if err != nil {
				t.Fatal(err)
			}
			s.await(t, within(10*time.Second), "the end of the initial events", initialEnd)
			s.stop()
		}
		transport.CloseIdleConnections()
	}
	cycle(5)
	// The least of some seconds: other work comes and goes.
	base := goroutines(t, config)
	for range 3 {
		time.Sleep(time.Second)
		if again := goroutines(t, config); again.serving < base.serving {
			base = again
		}
	}
	// The census sees a watch that is open.
	open, err := watchBy(t.Context(), client, config, path+"?"+watchListQuery)
	if err != nil {
		t.Fatal(err)
	}
	open.await(t, within(10*time.Second), "the end of the initial events", initialEnd)
	if now := goroutines(t, config); now.serving <= base.serving {
		t.Errorf("%d goroutines serve with a watch open, %d without", now.serving, base.serving)
	}
	open.stop()
	cycle(watches)
	labtest.Eventually(t, within(20*time.Second), func(context.Context) error {
		time.Sleep(time.Second)
		transport.CloseIdleConnections()
		if now := goroutines(t, config); now.serving > base.serving+slack {
			return fmt.Errorf("%d goroutines serve after %d watches, %d before; more of:\n%s", now.serving, watches, base.serving, now.more(base))
		}
		return nil
	})
}

// census is a goroutine profile. Feeds, informers and connections come and go
// while a member is frozen; what a watch may leave behind is what serves it.
type census struct {
	total   int
	serving int // in the handler of member kinds
	stacks  map[string]int
}

func serves(stack string) bool { return strings.Contains(stack, "isthmus/pkg/proxy/gateway") }

// more lists the stacks that have become most numerous.
func (c census) more(than census) string {
	grown := map[string]int{}
	for stack, n := range c.stacks {
		if serves(stack) && n > than.stacks[stack] {
			grown[stack] = n - than.stacks[stack]
		}
	}
	stacks := slices.SortedFunc(maps.Keys(grown), func(a, b string) int { return grown[b] - grown[a] })
	var b strings.Builder
	for _, stack := range stacks[:min(len(stacks), 8)] {
		fmt.Fprintf(&b, "%+d\n%s\n", grown[stack], stack)
	}
	return b.String()
}

func goroutines(t testing.TB, config *rest.Config) census {
	t.Helper()
	c := census{stacks: map[string]int{}}
	body := string(mustAsk(t, config, "/debug/pprof/goroutine?debug=1").body)
	if _, err := fmt.Sscanf(body, "goroutine profile: total %d", &c.total); err != nil || c.total < 50 {
		t.Fatalf("goroutine profile: %d, %v: %.100s", c.total, err, body)
	}
	for _, block := range strings.Split(body, "\n\n") {
		head, stack, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(head, "goroutine profile") {
			head, stack, _ = strings.Cut(stack, "\n")
		}
		var n int
		if _, err := fmt.Sscanf(head, "%d @", &n); err == nil {
			var functions []string
			for _, line := range strings.Split(stack, "\n") {
				if fields := strings.Fields(line); len(fields) > 3 {
					functions = append(functions, "  "+fields[2])
				}
			}
			whole := strings.Join(functions, "\n")
			c.stacks[whole] += n
			if serves(whole) {
				c.serving += n
			}
		}
	}
	return c
}
