package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	informers     = 50
	podsPerMember = 40
	clusterLabel  = "isthmus.dev/cluster"
	stepLabel     = "step"
)

// leader names the gateway that holds the Lease, empty where none does.
func leader(ctx context.Context, t testing.TB) (string, error) {
	t.Helper()
	lease, err := labtest.Client(t, world.System).CoordinationV1().Leases("isthmus-system").Get(ctx, "isthmus-gateway", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	address, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "#")
	for name, peer := range world.peers {
		if peer.Addr() == address {
			return name, nil
		}
	}
	return "", nil
}

// mustLeader waits for a leader other than one that is named.
func mustLeader(t testing.TB, limit time.Duration, not string) (name string) {
	t.Helper()
	labtest.Eventually(t, limit, func(ctx context.Context) error {
		var err error
		if name, err = leader(ctx, t); err != nil {
			return err
		}
		if name == "" || name == not {
			return fmt.Errorf("%q holds the Lease", name)
		}
		return nil
	})
	return name
}

// direct asks one gateway as the endpoint does, for an administrator.
type direct struct {
	client *http.Client
}

func newDirect(t testing.TB) direct {
	t.Helper()
	files := world.System.DataDir() + "/pki/"
	pair, err := tls.LoadX509KeyPair(files+"gateway-client.crt", files+"gateway-client.key")
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(files + "gateway-ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in gateway-ca.crt")
	}
	return direct{&http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13},
	}}}
}

func (d direct) ask(ctx context.Context, gateway, method, path, body string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+world.listen[gateway]+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-Remote-User", "admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	r.Header.Set("Accept", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := d.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// awaitReady waits until a gateway wants requests.
func awaitReady(t testing.TB, d direct, gateway string) {
	t.Helper()
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		code, body, err := d.ask(ctx, gateway, http.MethodGet, "/isthmus/replication/v1/ready", "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// revive starts what has ended, and waits until both gateways are ready.
func revive(t testing.TB, d direct) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within(2*time.Minute))
	defer cancel()
	if err := world.System.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range gateways {
		awaitReady(t, d, name)
	}
}

// watched is one informer, and what went wrong with it.
type watched struct {
	store   cache.Store
	mu      sync.Mutex
	newest  map[types.UID]string
	back    []string // objects whose RV went back
	expired []string // RVs of watches that ended as too old
}

// ended notes that a watch from an RV has ended as too old.
func (w *watched) ended(rv string, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expired = append(w.expired, rv)
}

func follow(t testing.TB, client kubernetes.Interface, ns string, watchList bool) *watched {
	t.Helper()
	w := &watched{newest: map[types.UID]string{}}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods(ns).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			stream, err := client.CoreV1().Pods(ns).Watch(ctx, options)
			if err != nil {
				w.ended(options.ResourceVersion, err)
				return nil, err
			}
			return apiwatch.Filter(stream, func(e apiwatch.Event) (apiwatch.Event, bool) {
				if e.Type == apiwatch.Error {
					w.ended(options.ResourceVersion, apierrors.FromObject(e.Object))
				}
				return e, true
			}), nil
		},
	}
	source := cache.ToListWatcherWithWatchListSemantics(lw, client)
	if !watchList {
		source = cache.ToListWatcherWithWatchListSemantics(lw, noWatchList{})
	}
	inf := cache.NewSharedInformer(source, &corev1.Pod{}, 0)
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: w.see, UpdateFunc: func(_, now any) { w.see(now) },
	}
	if _, err := inf.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	labtest.Eventually(t, within(time.Minute), func(context.Context) error {
		if !inf.HasSynced() {
			return fmt.Errorf("the informer has not synced")
		}
		return nil
	})
	w.store = inf.GetStore()
	return w
}

// noWatchList is a client that cannot do WatchList.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// see notes where the RV of an object is lower than it was.
func (w *watched) see(object any) {
	pod := object.(*corev1.Pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	was, now := w.newest[pod.UID], pod.ResourceVersion
	if len(now) < len(was) || len(now) == len(was) && now < was {
		w.back = append(w.back, fmt.Sprintf("%s: %s after %s", pod.Name, now, was))
		return
	}
	w.newest[pod.UID] = now
}

// view is the step and the phase of each Pod, by cluster and UID.
type view map[string]string

func (w *watched) view() view {
	out := view{}
	for _, item := range w.store.List() {
		pod := item.(*corev1.Pod)
		out[pod.Labels[clusterLabel]+" "+string(pod.UID)] = content(pod)
	}
	return out
}

func content(pod *corev1.Pod) string {
	return fmt.Sprintf("step=%s phase=%s deleting=%t", pod.Labels[stepLabel], pod.Status.Phase, pod.DeletionTimestamp != nil)
}

// held is what the members themselves have.
func held(ctx context.Context, t testing.TB, ns string) (view, error) {
	t.Helper()
	out := view{}
	for _, m := range world.Members {
		pods, err := labtest.Client(t, m).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			out[m.Name()+" "+string(pods.Items[i].UID)] = content(&pods.Items[i])
		}
	}
	return out, nil
}

func differences(want, got view) (out []string) {
	for key, text := range want {
		if got[key] != text {
			out = append(out, fmt.Sprintf("%s: served %q, held %q", key, got[key], text))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			out = append(out, key+" is served though gone")
		}
	}
	return out
}
