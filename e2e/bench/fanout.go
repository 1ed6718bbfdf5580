package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// FanOut is what one event costs a server for each of many watchers, beyond
// what it costs with none.
type FanOut struct {
	Server    string        `json:"server"`
	Watchers  int           `json:"watchers"`
	PerSecond float64       `json:"perSecond"`
	Idle      time.Duration `json:"cpuPerEvent"`           // with no watcher
	PerEvent  time.Duration `json:"cpuPerEventAndWatcher"` // of the first process
	Total     time.Duration `json:"cpuPerEventAndWatcherOfAll"`
}

// fanOut measures one server: churn without watchers, then with them.
func (t target) fanOut(ctx context.Context, c churn, first, n, perSecond, watchers int) (FanOut, error) {
	alone, _, err := t.underChurn(ctx, c, first, n, perSecond, 0)
	if err != nil {
		return FanOut{}, err
	}
	with, took, err := t.underChurn(ctx, c, first+n, n, perSecond, watchers)
	if err != nil {
		return FanOut{}, err
	}
	out := FanOut{Server: t.name, Watchers: watchers, PerSecond: float64(n) / took.Seconds(), Idle: alone[0] / time.Duration(n)}
	for i := range with {
		more := (with[i] - alone[i]) / time.Duration(n*watchers)
		if i == 0 {
			out.PerEvent = more
		}
		out.Total += more
	}
	return out, nil
}

// underChurn is the CPU of the processes while n changes reach all watchers.
func (t target) underChurn(ctx context.Context, c churn, first, n, perSecond, count int) (cpu []time.Duration, took time.Duration, err error) {
	var watchers []*watcher
	defer func() {
		for _, w := range watchers {
			err = errors.Join(err, w.stop())
		}
	}()
	for range count {
		w, err := t.watch(ctx, nil)
		if err != nil {
			return nil, 0, err
		}
		watchers = append(watchers, w)
	}
	before, err := cpuOf(t.processes)
	if err != nil {
		return nil, 0, err
	}
	if took, err = c.run(ctx, first, n, perSecond); err != nil {
		return nil, 0, err
	}
	all := func() bool {
		for _, w := range watchers {
			if w.events.Load() < int64(n) {
				return false
			}
		}
		return true
	}
	if err := await(ctx, 30*time.Second, all); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", t.name, errors.Join(errMissed, err))
	}
	cpu, err = spent(t.processes, before)
	return cpu, took, err
}
