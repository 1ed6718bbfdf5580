package outage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// refusals are the answers to watches that were not 200.
type refusals struct {
	mu   sync.Mutex
	said map[string]int
	good int
}

func (r *refusals) note(res *http.Response, path string) error {
	defer res.Body.Close() //nolint:errcheck // read to its end below
	body, err := io.ReadAll(res.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if res.StatusCode == http.StatusOK {
		r.good++
		return err
	}
	kind := ""
	retriable := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	switch {
	case !slices.Contains(retriable, res.StatusCode):
		kind = "not to be retried: "
	case res.Header.Get("Retry-After") == "":
		kind = "without Retry-After: "
	}
	if kind != "" {
		r.said[fmt.Sprintf("%s%d %s: %.200s", kind, res.StatusCode, path, body)]++
	}
	return err
}

// watchOn opens one short watch after the other until ctx ends; where nobody
// answers it tries again.
func (r *refusals) watchOn(ctx context.Context, config *rest.Config, path string) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return
	}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
		if err != nil {
			return
		}
		res, err := client.Do(req)
		if err == nil {
			err = r.note(res, path)
		}
		if err != nil { // refused, or cut off: as when a machine goes
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// While the endpoint goes down and comes up, a watch is refused with what makes
// a client try again, or not answered at all.
func TestWatchRefusalsAreRetried(t *testing.T) {
	awaitLive(t, "m1", "m2")
	config := labtest.Config(t, world.System)
	ns := memberNamespace(t, "refusals", world.m1)
	runPod(t, world.m1, ns, "web")
	served(t, 20*time.Second, ns, "web", "m1")
	rv, _ := versions(t, mustAsk(t, config, "/api/v1/namespaces/"+ns+"/pods").body)
	r := &refusals{said: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, path := range []string{
		fmt.Sprintf("/api/v1/namespaces/%s/pods?watch=1&timeoutSeconds=1&resourceVersion=%d", ns, rv),
		"/api/v1/pods?timeoutSeconds=1&" + watchListQuery,
		"/api/v1/configmaps?watch=1&timeoutSeconds=1",
		"/apis/apps/v1/replicasets?watch=1&timeoutSeconds=1",
		"/apis/cluster.karmada.io/v1alpha1/clusters?watch=1&timeoutSeconds=1",
		"/apis/events.k8s.io/v1/events?watch=1&timeoutSeconds=1",
	} {
		for range 3 {
			wg.Go(func() { r.watchOn(ctx, config, path) })
		}
	}
	time.Sleep(3 * time.Second)
	if err := world.System.StopProcess(endpoint, within(30*time.Second)); err != nil {
		t.Error(err)
	}
	startEndpoint(t)
	time.Sleep(2 * time.Second)
	if err := world.System.Kill(endpoint); err != nil {
		t.Error(err)
	}
	startEndpoint(t)
	time.Sleep(2 * time.Second)
	cancel()
	wg.Wait()
	for said, times := range r.said {
		t.Errorf("%d times %s", times, said)
	}
	if r.good < 50 {
		t.Errorf("%d watches were answered: too few to show anything", r.good)
	}
	awaitLive(t, "m1", "m2")
}
