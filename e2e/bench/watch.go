package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

var tickMark = []byte(`"` + tickAnnotation + `":"`)

// tickOf finds the number of the change that a watch event brings.
func tickOf(line []byte) (int, bool) {
	_, rest, ok := bytes.Cut(line, tickMark)
	if !ok {
		return 0, false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(string(rest[:end]))
	return n, err == nil
}

// watcher reads the Pods' changes as JSON lines.
type watcher struct {
	answer *http.Response
	client *http.Client
	cancel context.CancelFunc
	events atomic.Int64
	done   chan struct{}
	err    error // after done
}

// watch begins after everything that has happened. seen is called for every
// whole line.
func (t target) watch(ctx context.Context, seen func(line []byte, at time.Time)) (*watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{client: t.client(), cancel: cancel, done: make(chan struct{})}
	rv, err := t.head(ctx, w.client)
	if err != nil {
		cancel()
		return nil, err
	}
	header := http.Header{"Accept": {jsonType}, "Accept-Encoding": {"identity"}}
	if w.answer, err = t.get(ctx, w.client, "/api/v1/pods?watch=1&resourceVersion="+rv, header); err != nil { //nolint:bodyclose // closed with the watcher
		cancel()
		return nil, err
	}
	go func() {
		defer close(w.done)
		w.err = w.run(seen)
		if ctx.Err() != nil {
			w.err = nil // ended by us
		}
	}()
	return w, nil
}

func (w *watcher) run(seen func(line []byte, at time.Time)) error {
	lines := bufio.NewReaderSize(w.answer.Body, 256<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		if seen != nil {
			seen(line, time.Now())
		}
		w.events.Add(1)
	}
}

func (w *watcher) stop() error {
	w.cancel()
	<-w.done
	_ = w.answer.Body.Close() // cut off by us
	w.client.CloseIdleConnections()
	if w.err != nil {
		return fmt.Errorf("a watch ended: %w", w.err)
	}
	return nil
}

// head asks for the present resourceVersion of the Pods.
func (t target) head(ctx context.Context, client *http.Client) (string, error) {
	answer, err := t.get(ctx, client, "/api/v1/pods?limit=1", http.Header{"Accept": {protobufType}})
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("head of %s: %w", t.name, err)
	}
	list, err := decodeProtobuf(body)
	if err != nil {
		return "", fmt.Errorf("head of %s: %w", t.name, err)
	}
	return list.ResourceVersion, nil
}

// churn changes Pods of some clusters in turn at a steady rate.
type churn struct {
	clients []kubernetes.Interface
	pods    [][]int // by client
	workers int
}

// run makes n changes, numbered from first on, at the given rate. It returns
// how long that took.
func (c churn) run(ctx context.Context, first, n, perSecond int) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ticks := make(chan int, n)
	var wait sync.WaitGroup
	for range c.workers {
		wait.Go(func() {
			for tick := range ticks {
				if err := c.change(ctx, tick); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	start := time.Now()
	for i := range n {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			break
		}
		ticks <- first + i
	}
	close(ticks)
	wait.Wait()
	return time.Since(start), context.Cause(ctx)
}

func (c churn) change(ctx context.Context, tick int) error {
	which := tick % len(c.clients)
	pods := c.pods[which]
	// A stride that is prime walks all Pods in an order that no cache likes.
	i := pods[tick*7919%len(pods)]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, tickAnnotation, tick)
	_, err := c.clients[which].CoreV1().Pods(namespaceOf(i)).Patch(ctx, podName(i), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: network})
	if err != nil {
		return fmt.Errorf("change %d: %w", tick, err)
	}
	return nil
}

// Latency is how much later a watcher behind the product sees a change than
// one directly at the member.
type Latency struct {
	Via       string        `json:"via"`
	PerSecond float64       `json:"perSecond"`
	Events    int           `json:"events"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	Max       time.Duration `json:"max"`
}

// times notes when each change was seen first.
type times struct {
	first int
	at    []atomic.Int64
	start time.Time
}

func newTimes(first, n int, start time.Time) *times {
	return &times{first: first, at: make([]atomic.Int64, n), start: start}
}

func (t *times) note(line []byte, at time.Time) {
	tick, ok := tickOf(line)
	if i := tick - t.first; ok && i >= 0 && i < len(t.at) {
		t.at[i].CompareAndSwap(0, int64(at.Sub(t.start)))
	}
}

func (t *times) complete() bool {
	for i := range t.at {
		if t.at[i].Load() == 0 {
			return false
		}
	}
	return true
}

var errMissed = errors.New("a watcher did not see every change")

// since is the sorted delay of each change after another watcher saw it.
func (t *times) since(direct *times) []time.Duration {
	out := make([]time.Duration, 0, len(t.at))
	for i := range t.at {
		out = append(out, time.Duration(t.at[i].Load()-direct.at[i].Load()))
	}
	return out
}

// measureLatency compares the watchers behind the product with those at the
// members while churn runs.
func measureLatency(ctx context.Context, members, vias []target, c churn, first, n, perSecond int) (out []Latency, err error) {
	start := time.Now()
	direct := newTimes(first, n, start)
	var watchers []*watcher
	defer func() {
		for _, w := range watchers {
			err = errors.Join(err, w.stop())
		}
	}()
	open := func(t target, to *times) error {
		w, err := t.watch(ctx, to.note)
		if err == nil {
			watchers = append(watchers, w)
		}
		return err
	}
	for _, m := range members {
		if err := open(m, direct); err != nil {
			return nil, err
		}
	}
	seen := make([]*times, len(vias))
	for i, via := range vias {
		seen[i] = newTimes(first, n, start)
		if err := open(via, seen[i]); err != nil {
			return nil, err
		}
	}
	took, err := c.run(ctx, first, n, perSecond)
	if err != nil {
		return nil, err
	}
	for i, via := range vias {
		if err := await(ctx, 10*time.Second, func() bool { return seen[i].complete() && direct.complete() }); err != nil {
			return nil, fmt.Errorf("%s: %w", via.name, errors.Join(errMissed, err))
		}
		delays := seen[i].since(direct)
		out = append(out, Latency{
			Via: via.name, PerSecond: float64(n) / took.Seconds(), Events: n,
			P50: quantile(delays, 0.5), P99: quantile(delays, 0.99), Max: quantile(delays, 1),
		})
	}
	return out, nil
}

// await polls until the condition holds.
func await(ctx context.Context, limit time.Duration, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
