package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// attempts are what a client that watches again and again is told.
type attempts struct {
	mu      sync.Mutex
	told    map[string]int
	wrong   []string
	success int
}

func (a *attempts) note(told refusal, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.told["no answer"]++ // refused, or broken off with the process
	case told.code == http.StatusOK:
		a.success++
		a.told["200"]++
	case told.code == http.StatusTooManyRequests && told.again != "":
		a.told["429"]++
	default:
		a.told[fmt.Sprint(told.code)]++
		a.wrong = append(a.wrong, fmt.Sprintf("%+v", told))
	}
}

// refusal is what is said at the beginning of a watch.
type refusal struct {
	code        int
	again, body string
}

func (a *attempts) succeeded() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.success
}

// While the endpoint goes and comes, a watch is refused in the ways that let a
// client try again from where it was, and in no other.
func TestRefusalsOfAWatchAroundARestart(t *testing.T) {
	list, err := labtest.Client(t, world.System).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := &attempts{told: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		config := labtest.Config(t, world.System)
		clients.Go(func() {
			for ctx.Err() == nil {
				seen.note(watchOnce(ctx, config, list.ResourceVersion))
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	defer func() {
		cancel()
		clients.Wait()
		t.Logf("the clients were told %v", seen.told)
		for n, w := range seen.wrong {
			if n < 5 {
				t.Error(w)
			}
		}
	}()
	until := func(n int) {
		t.Helper()
		labtest.Eventually(t, time.Minute, func(context.Context) error {
			if got := seen.succeeded(); got < n {
				return fmt.Errorf("%d watches began, want %d", got, n)
			}
			return nil
		})
	}
	until(8)
	if err := world.System.StopProcess("multicluster-apiserver", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	before := seen.succeeded()
	restart, done := context.WithTimeout(t.Context(), 2*time.Minute)
	defer done()
	if err := world.System.Restart(restart); err != nil {
		t.Fatal(err)
	}
	until(before + 8)
}

// watchOnce watches for a second over a connection of its own.
func watchOnce(ctx context.Context, config *rest.Config, from string) (refusal, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return refusal{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion="+from, http.NoBody)
	if err != nil {
		return refusal{}, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return refusal{}, err
	}
	// An orderly end, or that of the process.
	body, err := io.ReadAll(resp.Body)
	return refusal{resp.StatusCode, resp.Header.Get("Retry-After"), string(body[:min(300, len(body))])}, errors.Join(err, resp.Body.Close())
}
