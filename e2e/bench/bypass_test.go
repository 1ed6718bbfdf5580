package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// bypassed is how much the Pods of members may cost the endpoint when a gateway
// of its own caches them.
const bypassed = 20 << 20

// footprint is what the endpoint holds after a collection: live bytes on the
// heap, and what the kernel counts.
type footprint struct{ heap, rss int64 }

func (f *fleet) footprint(ctx context.Context) (footprint, error) {
	var least footprint
	// What is being swept, answered or compiled at that moment is not held: the
	// least of some moments counts.
	for range 5 {
		now, err := f.footprintOnce(ctx)
		if err != nil {
			return least, err
		}
		if least.heap == 0 || now.heap < least.heap {
			least.heap = now.heap
		}
		if least.rss == 0 || now.rss < least.rss {
			least.rss = now.rss
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return least, err
		}
	}
	return least, nil
}

func (f *fleet) footprintOnce(ctx context.Context) (footprint, error) {
	config, err := f.system.RESTConfig()
	if err != nil {
		return footprint{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return footprint{}, err
	}
	defer client.CloseIdleConnections()
	if _, err := fetch(ctx, client, config.Host+"/debug/pprof/heap?gc=1", nil); err != nil {
		return footprint{}, err
	}
	var heap int64
	_, err = fetch(ctx, client, config.Host+"/metrics", func(r *http.Response) error {
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(r.Body)
		if err != nil {
			return err
		}
		for _, m := range families["go_memstats_heap_alloc_bytes"].GetMetric() {
			heap = int64(m.GetGauge().GetValue())
		}
		return nil
	})
	if err != nil {
		return footprint{}, err
	}
	m, err := f.process(endpointName).memory()
	return footprint{heap: heap, rss: m.RSS}, err
}

// fetch reads an answer to its end, or gives it to read.
func fetch(ctx context.Context, client *http.Client, url string, read func(*http.Response) error) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	if read == nil {
		read = func(r *http.Response) error { return drain(r.Body, 0) }
	}
	return answer.StatusCode, read(answer)
}

// With a gateway of its own, Pods of members cost the endpoint next to nothing:
// its own controllers and admission never see them.
func TestPodsBypassTheEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three real clusters and the product")
	}
	pods, err := strconv.Atoi(os.Getenv("ISTHMUS_E2E_BYPASS_PODS"))
	if err != nil {
		pods = 2000
	}
	ctx := t.Context()
	f, err := startFleet(ctx, Options{Dir: t.TempDir(), Pods: pods, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	}()
	clients, err := f.clients()
	if err != nil {
		t.Fatal(err)
	}
	delete(clients, f.plain.Name())
	if err := fill(ctx, t.Logf, clients, map[string][]int{"m1": f.pods["m1"][:1], "m2": f.pods["m2"][:1]}); err != nil { // what the first Pod costs
		t.Fatal(err)
	}
	before, err := f.footprint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.pods["m1"], f.pods["m2"] = f.pods["m1"][1:], f.pods["m2"][1:]
	if err := fill(ctx, t.Logf, clients, f.pods); err != nil {
		t.Fatal(err)
	}
	r := &run{Options: Options{Pods: pods, Logf: t.Logf}, fleet: f}
	if err := r.awaitServed(ctx, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	after, err := f.footprint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Pods: live heap %d -> %d MiB, resident %d -> %d MiB", pods, before.heap>>20, after.heap>>20, before.rss>>20, after.rss>>20)
	if dir := os.Getenv("ISTHMUS_E2E_PROFILES"); dir != "" {
		f.keepHeap(t, filepath.Join(dir, "endpoint.heap"))
	}
	if grown := after.heap - before.heap; grown > bypassed {
		t.Errorf("the endpoint holds %d MiB more, at most %d MiB may be", grown>>20, bypassed>>20)
	}
	if grown := after.rss - before.rss; grown > bypassed {
		t.Errorf("the endpoint is resident with %d MiB more, at most %d MiB may be", grown>>20, bypassed>>20)
	}
}

func (f *fleet) keepHeap(t *testing.T, path string) {
	t.Helper()
	config, err := f.system.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fetch(t.Context(), client, config.Host+"/debug/pprof/heap?gc=1", func(r *http.Response) error {
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = out.ReadFrom(r.Body)
		if err != nil {
			return err
		}
		return out.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
