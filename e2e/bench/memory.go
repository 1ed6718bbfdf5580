package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// MemoryRow is the memory of every server at one moment.
type MemoryRow struct {
	What      string `json:"what"`
	Reference Memory `json:"reference"`
	// Product is the gateway's, or the endpoint's when the cache is inside it.
	Product Memory `json:"product"`
	// Endpoint is zero when the cache is inside it.
	Endpoint Memory `json:"endpoint"`
}

// Fill is how a server comes back with the Pods there.
type Fill struct {
	Process string        `json:"process"`
	Ready   time.Duration `json:"ready"` // until a LIST is answered in full
	CPU     time.Duration `json:"cpu"`
	Memory  Memory        `json:"memory"` // at that moment, with the peak
}

func (r *run) memory(what string) error {
	row := MemoryRow{What: what}
	var err error
	if row.Reference, err = r.fleet.reference.processes[0].memory(); err != nil {
		return err
	}
	if row.Product, err = r.fleet.product.processes[0].memory(); err != nil {
		return err
	}
	if len(r.fleet.product.processes) > 1 {
		if row.Endpoint, err = r.fleet.product.processes[1].memory(); err != nil {
			return err
		}
	}
	r.result.Memory = append(r.result.Memory, row)
	return nil
}

func (r *run) rest(ctx context.Context, what string) error {
	if err := sleep(ctx, r.Settle); err != nil {
		return err
	}
	return r.memory(what)
}

// awaitServed waits until a LIST through the endpoint has every Pod.
func (r *run) awaitServed(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client := r.fleet.product.client()
	defer client.CloseIdleConnections()
	want := form{path: "/api/v1/pods", accept: metadataType}
	for {
		got, err := r.fleet.product.read(ctx, client, want, true)
		if err == nil && got.pods >= r.Pods {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%d of %d Pods are served after %s", got.pods, r.Pods, limit), err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// firstFill restarts the process that holds the cache.
func (r *run) firstFill(ctx context.Context) error {
	holder := r.fleet.product.processes[0]
	if err := r.fleet.system.StopProcess(holder.name, 15*time.Second); err != nil {
		return err
	}
	start := time.Now()
	if err := r.fleet.system.Restart(ctx); err != nil {
		return err
	}
	if err := r.awaitServed(ctx, 2*time.Minute); err != nil {
		return err
	}
	f := Fill{Process: holder.name, Ready: time.Since(start)}
	var err error
	if f.CPU, err = holder.cpu(); err != nil {
		return err
	}
	if f.Memory, err = holder.memory(); err != nil {
		return err
	}
	r.result.Fills = append(r.result.Fills, f)
	return nil
}

const crowdSize = 10

// crowd notes the peak of memory while 10 clients list everything, as client-go
// asks for it.
func (r *run) crowd(ctx context.Context) error {
	return r.peak(ctx, fmt.Sprintf("peak during %d full LISTs at once (JSON gzip)", crowdSize), forms()[1], 0)
}

// slowCrowd does the same with readers that take a few MB a second.
func (r *run) slowCrowd(ctx context.Context) error {
	return r.peak(ctx, fmt.Sprintf("peak during %d slow full LISTs at once (JSON, 8 MB/s each)", crowdSize), forms()[0], 8<<20)
}

func (r *run) peak(ctx context.Context, what string, f form, bytesPerSecond int) error {
	if err := r.rest(ctx, "before "+what); err != nil {
		return err
	}
	// One server after the other, so that neither waits for a core of the other.
	for _, t := range []target{r.fleet.reference, r.fleet.product} {
		for _, p := range t.processes {
			if err := p.resetPeak(); err != nil {
				return err
			}
		}
		if err := t.together(ctx, f, bytesPerSecond); err != nil {
			return err
		}
	}
	return r.memory(what)
}

// together lets clients with connections of their own list at once.
func (t target) together(ctx context.Context, f form, bytesPerSecond int) error {
	errs := make([]error, crowdSize)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			client := t.client()
			defer client.CloseIdleConnections()
			answer, err := t.get(ctx, client, f.path, f.header())
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = answer.Body.Close() }() // read to its end
			errs[i] = drain(answer.Body, bytesPerSecond)
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// drain reads to the end, at most at the given speed if there is one.
func drain(from io.Reader, bytesPerSecond int) error {
	if bytesPerSecond == 0 {
		_, err := io.Copy(io.Discard, from)
		return err
	}
	const pause = 50 * time.Millisecond
	for {
		_, err := io.CopyN(io.Discard, from, int64(bytesPerSecond)*int64(pause)/int64(time.Second))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// steadyChurn notes memory while Pods change all the time.
func (r *run) steadyChurn(ctx context.Context) error {
	rate, seconds := 100, r.ChurnSeconds
	if r.Full {
		rate, seconds = 200, 600
	}
	for _, p := range append(append([]process{}, r.fleet.reference.processes...), r.fleet.product.processes...) {
		if err := p.resetPeak(); err != nil {
			return err
		}
	}
	stop := sayEvery(10*time.Second, func() { r.Logf("changing %d Pods a second", rate) })
	defer stop()
	n := rate * seconds
	failed := make(chan error, 1)
	go func() {
		_, err := r.plain.run(ctx, r.ticks(n), n, rate)
		failed <- err
	}()
	_, err := r.all.run(ctx, 1<<30, n, rate)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	return r.memory(fmt.Sprintf("under %d changes/s for %d s", rate, seconds))
}
