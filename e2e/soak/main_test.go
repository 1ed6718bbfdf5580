// Package soak keeps everything busy and breaks it meanwhile, by a plan that a
// seed decides, and then judges what was written.
//
//	TestMain -> etcd, two replicas of the endpoint, a gateway
//	         -> m1, m2, m3, each behind an Injector (requests) and a Proxy
//	            (connections)
//	TestChaos: churn -> endpoints       plan -> faults
//	         -> clients' log, bindings in etcd, members' audit logs -> judge
//	TestLoad: informers, readers, writers; m3 flaps -> stream, members
//
// SOAK_DURATION=10m makes the long run (`make soak`), SOAK_SEED repeats one. With
// SOAK_DIR the clusters live in that folder and outlive the run.
package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	endpoint = "multicluster-apiserver"
	gateway  = "cluster-gateway"
)

// world is what all tests share.
var world struct {
	labtest.World
	etcd      *lab.Etcd
	dir       string // of etcd and of the second replica
	replicas  [2]*lab.System
	proxies   map[string]*lab.Proxy
	injectors map[string]*lab.Injector
	metrics   string // URL of the gateway's
}

// size of the run.
var size = struct {
	duration time.Duration
	long     bool
	seed     uint64
}{duration: time.Minute, seed: uint64(time.Now().UnixNano()) % 1e9}

var names = []string{"m1", "m2", "m3"}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if err := readSize(); err != nil {
		return 1, err
	}
	var addresses [4]string
	for i := range addresses {
		if addresses[i], err = lab.FreeAddress(); err != nil {
			return 1, err
		}
	}
	world.dir = os.Getenv("SOAK_DIR")
	if keep := world.dir != ""; keep {
		world.dir = filepath.Join(world.dir, "more")
	} else if world.dir, err = os.MkdirTemp("", "soak-more-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return 1, err
	}
	options := lab.SystemOptions{Flags: []string{
		"--etcd-servers=http://" + addresses[1], "--gateway=" + addresses[2], "--v=2",
		// Churn is what the breaker is there to stop.
		"--breaker-replicas-floor=1000000", "--breaker-objects-floor=1000000", "--breaker-small-fleet=2000000",
	}}
	if options.Port, err = strconv.Atoi(port); err != nil {
		return 1, err
	}
	world.metrics = "http://" + addresses[3] + "/metrics"
	return labtest.Main(m, &world.World, labtest.WorldOptions{
		Name: "soak", Members: []lab.Options{{Name: "m1"}, {Name: "m2"}, {Name: "m3"}}, System: options,
		Before: func(w *labtest.World) (err error) {
			world.etcd, err = lab.StartEtcd(context.Background(), filepath.Join(world.dir, "etcd"), addresses[1], w.Keep, logf)
			return errors.Join(err, breakable(w))
		},
		After: func(w *labtest.World) error { return complete(w, addresses[2], addresses[3]) },
	}), nil
}

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func readSize() error {
	if text := os.Getenv("SOAK_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("SOAK_DURATION=%q is not a duration above 0", text)
		}
		size.duration, size.long = d, d >= 5*time.Minute
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("SOAK_SEED=%q is not a number", text)
		}
		size.seed = seed
	}
	return nil
}

// breakable puts an Injector and a Proxy before each member.
func breakable(w *labtest.World) error {
	world.proxies, world.injectors = map[string]*lab.Proxy{}, map[string]*lab.Injector{}
	for _, m := range w.Members {
		i, err := lab.NewInjector(m)
		if err != nil {
			return err
		}
		p, err := lab.NewProxy(i.Addr())
		if err != nil {
			return err
		}
		world.injectors[m.Name()], world.proxies[m.Name()] = i, p
	}
	return nil
}

// complete starts the gateway and the second replica, and joins the members.
func complete(w *labtest.World, gatewayAddress, metricsAddress string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	options := w.SystemOptions(logf)
	options.GatewayFlags = []string{
		"--certificates=" + filepath.Join(w.System.DataDir(), "pki"), "--endpoint=https://" + w.System.Address(),
		"--listen=" + gatewayAddress, "--metrics-listen=" + metricsAddress, "--compare-every=30s",
	}
	// The certificates of the gateway are there now.
	first, err := lab.StartSystem(ctx, options)
	if err != nil {
		return err
	}
	w.System, world.replicas[0] = first, first
	options.GatewayFlags, options.Port, options.Dir = nil, 0, filepath.Join(world.dir, "endpoint-2")
	pki := filepath.Join(options.Dir, "data", "pki")
	if _, err := os.Stat(pki); errors.Is(err, os.ErrNotExist) {
		if err := os.CopyFS(pki, os.DirFS(filepath.Join(first.DataDir(), "pki"))); err != nil {
			return err
		}
	}
	if world.replicas[1], err = lab.StartSystem(ctx, options); err != nil {
		return err
	}
	for _, m := range w.Members {
		kubeconfig, err := world.injectors[m.Name()].Kubeconfig(ctx, m, world.proxies[m.Name()].Addr())
		if err != nil {
			return err
		}
		if err := first.Join(ctx, m.Name(), kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

// stop ends what labtest.Main does not know of; it has ended the members.
func stop() error {
	var errs []error
	if os.Getenv("SOAK_DIR") == "" {
		if world.replicas[1] != nil {
			errs = append(errs, world.replicas[1].Stop())
		}
		if world.etcd != nil {
			errs = append(errs, world.etcd.Stop())
		}
		errs = append(errs, os.RemoveAll(world.dir))
	}
	for _, name := range names {
		if p := world.proxies[name]; p != nil {
			p.Close()
		}
		if i := world.injectors[name]; i != nil {
			i.Close()
		}
	}
	return errors.Join(errs...)
}

// diary tells what happened, with the time since its beginning.
type diary struct {
	t     testing.TB
	began time.Time
	mu    sync.Mutex
	ended bool
}

func newDiary(t testing.TB) *diary {
	d := &diary{t: t, began: time.Now()}
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended = true
	})
	return d
}

func (d *diary) note(format string, args ...any) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.t.Logf("%6.1fs %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	}
}
