package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Logf receives progress lines.
type Logf func(format string, args ...any)

// Options say how much is measured.
type Options struct {
	Dir    string // state of the clusters
	Pods   int    // in all
	Rounds int    // of LISTs
	// Full adds what takes long: churn of ten minutes, 1,000 events a second,
	// 1,000 watchers.
	Full bool
	// InProcess runs the member cache inside the endpoint.
	InProcess bool
	// Profiles, if set, is the folder of CPU profiles of the gateway.
	Profiles string
	// Settle is how long the servers are left alone before their memory counts.
	Settle time.Duration
	// ChurnSeconds, Events scale the parts that take a fixed time.
	ChurnSeconds, Events int
	Logf                 Logf
}

// Result is everything that was measured.
type Result struct {
	Pods      int           `json:"pods"`
	InProcess bool          `json:"inProcess"`
	Started   time.Time     `json:"started"`
	Took      time.Duration `json:"took"`
	CPUs      int           `json:"cpus"`
	// Load is the machine's load average at the start and the end.
	Load    [2]string   `json:"load"`
	Idle    []IdleRow   `json:"idle"`
	Lists   []ListRow   `json:"lists"`
	Memory  []MemoryRow `json:"memory"`
	Fills   []Fill      `json:"fills"`
	Latency []Latency   `json:"latency"`
	FanOut  []FanOut    `json:"fanOut"`
}

// IdleRow is the CPU a server uses when nobody asks anything of it.
type IdleRow struct {
	Process   string        `json:"process"`
	PerSecond time.Duration `json:"perSecond"`
}

// run is one run on its way.
type run struct {
	Options
	fleet    *fleet
	result   *Result
	all      churn // the members
	plain    churn
	nextTick int
}

func (o Options) withDefaults() Options {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	set := func(to *int, value int) {
		if *to == 0 {
			*to = value
		}
	}
	set(&o.Pods, 10_000)
	set(&o.Rounds, 3)
	set(&o.Events, 2000)
	set(&o.ChurnSeconds, 30)
	if o.Settle == 0 {
		o.Settle = 15 * time.Second
	}
	return o
}

// Run starts the clusters, measures, and stops what it started. Beside an error
// it returns what was measured before, nil when that is nothing.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	o = o.withDefaults()
	r := &run{Options: o, result: &Result{Pods: o.Pods, InProcess: o.InProcess, Started: time.Now(), CPUs: runtime.NumCPU()}}
	r.result.Load[0] = load()
	if r.fleet, err = startFleet(ctx, o); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.fleet.stop()) }()
	err = r.measure(ctx)
	r.result.Took = time.Since(r.result.Started)
	r.result.Load[1] = load()
	return r.result, err
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

func (r *run) measure(ctx context.Context) error {
	clients, err := r.fleet.clients()
	if err != nil {
		return err
	}
	r.prepareChurn(clients)
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"memory of empty servers", func(ctx context.Context) error { return r.rest(ctx, "empty") }},
		{"creating Pods", func(ctx context.Context) error {
			return fill(ctx, r.Logf, clients, r.fleet.pods)
		}},
		{"waiting until the endpoint serves them", func(ctx context.Context) error { return r.awaitServed(ctx, time.Minute) }},
		{"memory after they were created", func(ctx context.Context) error { return r.rest(ctx, "at rest, after the Pods were created") }},
		{"first fill", r.firstFill},
		{"memory after the first fill", func(ctx context.Context) error { return r.rest(ctx, "at rest, after a restart") }},
		{"CPU at rest", r.idle},
		{"LISTs", r.lists},
		{"profiles", r.profiles},
		{"10 readers at once", r.crowd},
		{"10 slow readers at once", r.slowCrowd},
		{"watch latency", r.latency},
		{"fan-out", r.fanOuts},
		{"churn", r.steadyChurn},
	} {
		r.Logf("%s", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (r *run) prepareChurn(clients map[string]kubernetes.Interface) {
	r.nextTick = 1
	r.plain = churn{workers: 16, clients: []kubernetes.Interface{clients[r.fleet.plain.Name()]}, pods: [][]int{r.fleet.pods[r.fleet.plain.Name()]}}
	r.all.workers = 16
	for _, m := range r.fleet.members {
		r.all.clients = append(r.all.clients, clients[m.Name()])
		r.all.pods = append(r.all.pods, r.fleet.pods[m.Name()])
	}
}

// ticks reserves numbers for n changes.
func (r *run) ticks(n int) int {
	first := r.nextTick
	r.nextTick += n
	return first
}

func (r *run) lists(ctx context.Context) error {
	var err error
	r.result.Lists, err = compareLists(ctx, r.Logf, r.fleet.reference, r.fleet.product, r.Pods, r.Rounds)
	return err
}

func (r *run) idle(ctx context.Context) error {
	const seconds = 5
	all := append([]process{}, r.fleet.reference.processes...)
	all = append(all, r.fleet.product.processes...)
	before, err := cpuOf(all)
	if err != nil {
		return err
	}
	if err := sleep(ctx, seconds*time.Second); err != nil {
		return err
	}
	used, err := spent(all, before)
	for i, p := range all {
		if err == nil {
			r.result.Idle = append(r.result.Idle, IdleRow{Process: p.name, PerSecond: used[i] / seconds})
		}
	}
	return err
}

func (r *run) latency(ctx context.Context) error {
	vias := []target{r.fleet.product}
	if r.fleet.gateway != nil {
		vias = append(vias, *r.fleet.gateway)
	}
	rates := []int{100}
	if r.Full {
		rates = append(rates, 1000)
	}
	for _, rate := range rates {
		n := min(r.Events, rate*20)
		if rate > 100 {
			n = rate * 20
		}
		rows, err := measureLatency(ctx, r.fleet.direct, vias, r.all, r.ticks(n), n, rate)
		if err != nil {
			return err
		}
		r.result.Latency = append(r.result.Latency, rows...)
	}
	return nil
}

func (r *run) fanOuts(ctx context.Context) error {
	type load struct{ watchers, perSecond int }
	loads := []load{{100, 50}}
	if r.Full {
		loads = append(loads, load{1000, 5})
	}
	for _, l := range loads {
		for _, side := range []struct {
			target
			churn
		}{{r.fleet.reference, r.plain}, {r.fleet.product, r.all}} {
			n := min(r.Events, l.perSecond*15)
			row, err := side.fanOut(ctx, side.churn, r.ticks(2*n), n, l.perSecond, l.watchers)
			if err != nil {
				return err
			}
			r.result.FanOut = append(r.result.FanOut, row)
			r.Logf("fan-out of %s to %d: %s per event and watcher", row.Server, row.Watchers, row.Total)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
