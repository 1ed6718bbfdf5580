package chain

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// Watches, followed logs and commands outlive the limit of ordinary requests.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	running(t, ns, inCluster(pod("web"), "m1"))
	client := endpoint(t)
	const longer = requestTimeout + 4*time.Second
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		w, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		next(t, w, watch.Added, 10*time.Second)
		time.Sleep(longer)
		if _, err := client.CoreV1().Pods(ns).Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"late":"yes"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		for {
			if p := next(t, w, watch.Modified, 10*time.Second); p.Labels["late"] == "yes" {
				return
			}
		}
	})
	t.Run("logs", func(t *testing.T) {
		t.Parallel()
		stream, err := client.CoreV1().Pods(ns).GetLogs("web", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close() //nolint:errcheck // only read
		lines := bufio.NewReader(stream)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		time.Sleep(longer)
		if err := world.Member("m1").AppendLog("a late line"); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			if strings.Contains(line, "a late line") {
				return
			}
		}
	})
	t.Run("through to a member", func(t *testing.T) {
		t.Parallel()
		watchesThrough(t, longer)
	})
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		out := execute(t, ns, "web", "sh", "-c", fmt.Sprintf("sleep %d; echo late", int(longer.Seconds())))
		if strings.TrimSpace(out) != "late" {
			t.Errorf("output %q", out)
		}
	})
}

// watchesThrough watches in a member by the proxy of its Cluster: the watch is
// counted as a long request, outlives the limit, and ends when it was asked to.
func watchesThrough(t *testing.T, longer time.Duration) {
	t.Helper()
	ns := namespace(t) // other tests watch theirs
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, world.Member("m1")).CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	config := labtest.Config(t, world.System)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	limit := longer + 2*time.Second
	path := fmt.Sprintf("/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/%s/pods?watch=1&timeoutSeconds=%d", ns, int(limit.Seconds()))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end below
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the watch began after %s", took)
	}
	if counted := ask(t, config, "GET", "/metrics", nil); !throughLine.Match(counted.body) {
		t.Error("the watch is not counted among the long requests")
	}
	time.Sleep(longer - time.Since(started))
	made := pod("through")
	if _, err := labtest.Client(t, world.Member("m1")).CoreV1().Pods(ns).Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"name":"through"`) {
		t.Errorf("after %s the watch ends with %v and %d bytes", time.Since(started), err, len(body))
	}
	if took := time.Since(started); took < limit-time.Second {
		t.Errorf("the watch ended after %s, asked for %s", took, limit)
	}
}

var throughLine = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{[^}]*resource="clusters"[^}]*subresource="proxy"[^}]*\} [1-9]`)

// next is the Pod of the next event, which must be of a type.
func next(t testing.TB, w watch.Interface, kind watch.EventType, limit time.Duration) *corev1.Pod {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		p, isPod := e.Object.(*corev1.Pod)
		if !ok || e.Type != kind || !isPod {
			t.Fatalf("event %s %v (open: %v), want %s", e.Type, e.Object, ok, kind)
		}
		return p
	case <-time.After(limit):
		t.Fatalf("no %s event in %s", kind, limit)
	}
	return nil
}

func execute(t testing.TB, ns, name string, command ...string) string {
	t.Helper()
	u := endpoint(t).CoreV1().RESTClient().Post().Resource("pods").Namespace(ns).Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "web", Command: command, Stdout: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(labtest.Config(t, world.System), "GET", u.String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// limitedUser has the rights of a ClusterRole and no seat exempt from flow control.
func limitedUser(t testing.TB, name, role string) *rest.Config {
	t.Helper()
	admin := world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, "", "create", "clusterrolebinding", name, "--clusterrole="+role, "--user="+name)
	t.Cleanup(func() { labtest.Kubectl(t, admin, "", "delete", "clusterrolebinding", name) })
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	if _, err := world.System.Command(t.Context(), "kubeconfig", "--user", name, "--data-dir", world.System.DataDir(),
		"--kubeconfig", admin, "-o", file); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// Watches of routed kinds give their seats of flow control back when their
// initial events are out.
func TestWatchesHoldNoSeats(t *testing.T) {
	ns := namespace(t)
	running(t, ns, pod("web"))
	config := limitedUser(t, labtest.UniqueName(t, "watcher"), "view")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	const watchers = 300 // more than all seats of a small server
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, watchers)
	for range watchers {
		wg.Go(func() {
			w, err := client.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{
				SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
			})
			if err != nil {
				failed <- err
				return
			}
			for e := range w.ResultChan() {
				if e.Type == watch.Bookmark {
					failed <- nil
					break
				}
			}
			<-ctx.Done()
			w.Stop()
		})
	}
	for range watchers {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("watches do not get through")
		}
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		if seats := seatsTaken(t); seats > 20 {
			return fmt.Errorf("%d seats are taken while %d watches only wait", seats, watchers)
		}
		return nil
	})
	cancel()
	wg.Wait()
}

var seatLine = regexp.MustCompile(`(?m)^apiserver_flowcontrol_current_executing_seats\{(.*)\} (\d+)$`)

// seatsTaken sums the seats of all levels that are not exempt.
func seatsTaken(t testing.TB) int {
	t.Helper()
	a := ask(t, labtest.Config(t, world.System), "GET", "/metrics", nil)
	lines := seatLine.FindAllSubmatch(a.body, -1)
	if len(lines) == 0 {
		t.Fatal("no seats in /metrics")
	}
	sum := 0
	for _, line := range lines {
		n, err := strconv.Atoi(string(line[2]))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(line[1]), `priority_level="exempt"`) {
			sum += n
		}
	}
	return sum
}
