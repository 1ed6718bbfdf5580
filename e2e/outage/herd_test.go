package outage

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// equalListsHaveEqualVersions: what has not changed is listed at the same
// resourceVersion.
func equalListsHaveEqualVersions(t *testing.T, config *rest.Config) {
	t.Helper()
	same := 0
	var last uint64
	var before map[string]uint64
	for range 30 {
		rv, items := versions(t, mustAsk(t, config, "/api/v1/pods").body)
		if before != nil && maps.Equal(before, items) {
			if same++; rv != last {
				t.Errorf("the same Pods are listed at %d and at %d", last, rv)
			}
		}
		last, before = rv, items
	}
	if same < 10 {
		t.Errorf("only %d of 30 lists were of the state of the one before", same)
	}
}

// lists counts the requests of clients that read a collection as a whole.
type lists struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (l lists) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		l.n.Add(1)
	}
	return l.next.RoundTrip(r)
}

// Neither a restart of the endpoint nor one of a member makes clients read
// everything anew: their watches go on from where they were.
func TestRestartsAreNoHerd(t *testing.T) {
	awaitLive(t, "m1", "m2")
	ns := memberNamespace(t, "herd", world.m1, world.m2)
	runPod(t, world.m1, ns, "first")
	served(t, 20*time.Second, ns, "first", "m1")
	const clients = 40
	var read atomic.Int64
	var stores []cache.SharedIndexInformer
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	for range clients {
		config := labtest.Config(t, world.System)
		config.QPS = -1
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return lists{next, &read} })
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
		stores = append(stores, f.Core().V1().Pods().Informer())
		f.StartWithContext(ctx)
		t.Cleanup(func() { cancel(); f.Shutdown() })
	}
	everybodyHas := func(name string) {
		t.Helper()
		labtest.Eventually(t, within(settleLimit+15*time.Second), func(context.Context) error {
			for i, s := range stores {
				if _, ok, err := s.GetStore().GetByKey(ns + "/" + name); err != nil || !ok {
					return fmt.Errorf("informer %d does not know %s (%v)", i, name, err)
				}
			}
			return nil
		})
	}
	everybodyHas("first")
	atFirst := read.Load()
	if atFirst < clients {
		t.Fatalf("%d reads of %d informers: they are not counted", atFirst, clients)
	}

	revive := kill(t, world.m1)
	revive()
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		_, err := labtest.Client(t, world.m1).CoreV1().Pods(ns).Create(ctx, barePod(ns, "second"), metav1.CreateOptions{})
		return err
	})
	everybodyHas("second")
	if n := read.Load() - atFirst; n != 0 {
		t.Errorf("a restart of a member made %d informers read anew %d times", clients, n)
	}
	awaitLive(t, "m1", "m2")

	if err := world.System.StopProcess(endpoint, within(30*time.Second)); err != nil {
		t.Error(err)
	}
	startEndpoint(t)
	awaitLive(t, "m1", "m2")
	runPod(t, world.m2, ns, "third")
	everybodyHas("third")
	if n := read.Load() - atFirst; n > clients/20 {
		t.Errorf("a restart of the endpoint made %d informers read anew %d times", clients, n)
	}
}
