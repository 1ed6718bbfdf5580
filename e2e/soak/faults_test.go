package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/plan"
)

// deck are all faults. A leader that stands still does so for longer than its
// lease and then wakes up beside its successor.
func deck() []plan.Fault {
	second := time.Second
	return []plan.Fault{
		{Kind: "disturb requests to", Targets: []string{"m1", "m2", "m3"}, Least: 10 * second, Most: 20 * second},
		{Kind: "disturb requests to", Targets: []string{"m1", "m2", "m3"}, Least: 10 * second, Most: 20 * second},
		{Kind: "freeze", Targets: []string{"m1", "m2", "m3"}, Least: 4 * second, Most: 20 * second},
		{Kind: "kill", Targets: []string{"m1", "m2", "m3"}, Least: second, Most: 8 * second},
		{Kind: "cut off", Targets: []string{"m1", "m2", "m3"}, Least: 3 * second, Most: 12 * second},
		{Kind: "silence", Targets: []string{"m1", "m2", "m3"}, Least: 5 * second, Most: 20 * second},
		{Kind: "lose the answers of", Targets: []string{"m1", "m2", "m3"}, Least: 4 * second, Most: 12 * second},
		{Kind: "slow down", Targets: []string{"m1", "m2", "m3"}, Least: 5 * second, Most: 15 * second},
		{Kind: "kill", Targets: []string{"etcd"}, Least: second, Most: 4 * second},
		{Kind: "freeze", Targets: []string{"etcd"}, Least: 2 * second, Most: 7 * second},
		{Kind: "freeze", Targets: []string{"leader"}, Least: 20 * second, Most: 30 * second},
		{Kind: "kill", Targets: []string{"leader"}, Least: second, Most: 5 * second},
		{Kind: "kill", Targets: []string{"follower"}, Least: second, Most: 5 * second},
		{Kind: "kill", Targets: []string{gateway}, Least: second, Most: 5 * second},
	}
}

// saboteur carries out a plan. What is down because of it is brought back by it;
// a process that ends by itself is started again, as a service manager does.
type saboteur struct {
	*diary
	mu      sync.Mutex
	held    map[string]bool // processes that are to stay down, or as they are
	starts  [2]sync.Mutex
	counts  map[string]int
	restart int // of processes that ended by themselves
}

func newSaboteur(d *diary) *saboteur {
	return &saboteur{diary: d, held: map[string]bool{}, counts: map[string]int{}}
}

// run carries out the steps and returns when all is whole again.
func (s *saboteur) run(ctx context.Context, steps []plan.Step, seed uint64) {
	watching, done := context.WithCancel(ctx)
	var wg, watch sync.WaitGroup
	watch.Go(func() { s.supervise(watching) })
	began := time.Now()
	for i, step := range steps {
		select {
		case <-time.After(time.Until(began.Add(step.At))):
		case <-ctx.Done():
			continue
		}
		wg.Go(func() {
			s.note("%s", step)
			if err := s.carryOut(ctx, step, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				s.note("%s: %v", step, err)
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.counts[step.Kind+" "+step.Target]++
		})
	}
	wg.Wait()
	done()
	watch.Wait()
}

func (s *saboteur) carryOut(ctx context.Context, step plan.Step, r *rand.Rand) error {
	pause := func() {
		select {
		case <-time.After(step.For):
		case <-ctx.Done():
		}
	}
	switch step.Target {
	case "etcd":
		return s.breakEtcd(step.Kind, pause)
	case "leader", "follower":
		return s.breakReplica(step, pause)
	case gateway:
		for !s.hold(0) {
			time.Sleep(500 * time.Millisecond)
		}
		defer s.release(0)
		if err := world.replicas[0].Kill(gateway); err != nil {
			return err
		}
		pause()
		return s.start(0)
	}
	m, p := world.Member(step.Target), world.proxies[step.Target]
	switch step.Kind {
	case "freeze":
		if err := m.Freeze(); err != nil {
			return err
		}
		pause()
		return m.Thaw()
	case "kill":
		if err := m.Kill(); err != nil {
			return err
		}
		pause()
		return again(m.Restart)
	case "disturb requests to":
		s.disturb(ctx, step, r, pause)
		return nil
	case "cut off":
		p.Cut()
	case "silence":
		p.Blackhole()
	case "lose the answers of":
		p.DropUpstream()
	case "slow down":
		p.Delay(300 * time.Millisecond)
	default:
		return fmt.Errorf("no fault of that kind")
	}
	pause()
	return p.Heal()
}

func (s *saboteur) breakEtcd(kind string, pause func()) error {
	if kind == "freeze" {
		if err := world.etcd.Freeze(); err != nil {
			return err
		}
		pause()
		return world.etcd.Thaw()
	}
	if err := world.etcd.Kill(); err != nil {
		return err
	}
	pause()
	return again(world.etcd.Restart)
}

// again starts something, though the machine be slow.
func again(start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return start(ctx)
}

func (s *saboteur) breakReplica(step plan.Step, pause func()) error {
	i, err := s.take(step.Target)
	if err != nil {
		return err
	}
	defer s.release(i)
	s.note("%s: replica %d", step, i+1)
	if step.Kind == "freeze" {
		if err := world.replicas[i].Signal(endpoint, syscall.SIGSTOP); err != nil {
			return err
		}
		pause()
		return world.replicas[i].Signal(endpoint, syscall.SIGCONT)
	}
	if err := world.replicas[i].Kill(endpoint); err != nil {
		return err
	}
	pause()
	return s.start(i)
}

// take waits until there is such a replica, one that nothing is being done to.
func (s *saboteur) take(role string) (int, error) {
	deadline := time.Now().Add(4 * time.Minute)
	for {
		i, err := leading()
		if role == "follower" {
			i = 1 - i
		}
		if err == nil && s.hold(i) {
			if world.replicas[i].PID(endpoint) != 0 {
				return i, nil
			}
			s.release(i)
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("there is no %s: %w", role, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (s *saboteur) hold(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(i)
	if s.held[key] {
		return false
	}
	s.held[key] = true
	return true
}

func (s *saboteur) release(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, fmt.Sprint(i))
}

// start brings a replica back, and the gateway with the first. It need not be
// ready: that is for the end, when its store and the members are whole.
func (s *saboteur) start(i int) error {
	s.starts[i].Lock()
	defer s.starts[i].Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// A leader that had been frozen ends by itself, while it is waited for too.
	for attempt := 1; ; attempt++ {
		if err := world.replicas[i].Restart(ctx); err == nil || attempt == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// supervise starts a replica again that has ended by itself: a leader does when
// it has lost its lease.
func (s *saboteur) supervise(ctx context.Context) {
	for ctx.Err() == nil {
		for i, r := range world.replicas {
			if r.PID(endpoint) != 0 && (i == 1 || r.PID(gateway) != 0) || !s.hold(i) {
				continue
			}
			s.mu.Lock()
			s.restart++
			s.mu.Unlock()
			s.note("replica %d has ended", i+1)
			if err := s.start(i); err != nil {
				s.note("replica %d: %v", i+1, err)
			}
			s.release(i)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// leading finds the replica that holds the lease, by what it said its name is.
func leading() (int, error) {
	var errs []error
	for _, r := range world.replicas {
		config, err := r.RESTConfig()
		if err != nil {
			return 0, err
		}
		config.Timeout = 3 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		answer, err := labtest.Request(ctx, config, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/isthmus-system/leases/isthmus-leader", nil)
		cancel()
		if err != nil || answer.Code != http.StatusOK {
			errs = append(errs, fmt.Errorf("the lease: %s: %w", answer, err))
			continue
		}
		_, rest, _ := strings.Cut(string(answer.Body), `"holderIdentity":"`)
		holder, _, _ := strings.Cut(rest, `"`)
		for i, r := range world.replicas {
			log, err := os.ReadFile(r.LogPath(endpoint))
			if err != nil {
				return 0, err
			}
			if holder != "" && strings.Contains(string(log), holder) && strings.Contains(string(log), `identity="`+holder+`"`) {
				return i, nil
			}
		}
		errs = append(errs, fmt.Errorf("no replica is %q", holder))
	}
	return 0, errors.Join(errs...)
}

// disturbances are dealt out in turn, so that a short run has them all.
func disturbances(r *rand.Rand) []lab.Fault {
	hang := time.Duration(1+r.IntN(4)) * time.Second
	all := []lab.Fault{
		{Injection: lab.LoseRequest},
		{Injection: lab.LoseRequest, Hang: hang},
		{Injection: lab.LoseAnswer},
		{Injection: lab.LoseAnswer, Hang: hang},
		{Injection: lab.CutAnswer},
		{Injection: lab.Repeat},
	}
	for _, code := range []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		all = append(all, lab.Fault{Injection: lab.Refuse, Code: code})
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// disturb breaks every second request of the engine; how many were, it counts.
func disturb(r *rand.Rand, broken *atomic.Int64) func(*http.Request) lab.Fault {
	var mu sync.Mutex
	var left []lab.Fault
	return func(req *http.Request) lab.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasPrefix(req.UserAgent(), "isthmus-engine") || r.IntN(2) == 0 {
			return lab.Fault{}
		}
		if req.URL.Query().Get("watch") != "" {
			if strings.Contains(req.Header.Get("Accept"), "json") {
				return lab.Fault{Injection: lab.RepeatEvents}
			}
			return lab.Fault{}
		}
		if len(left) == 0 {
			left = disturbances(r)
		}
		f := left[0]
		left = left[1:]
		broken.Add(1)
		return f
	}
}

// enough requests are broken before a disturbance ends, if they come at all.
const (
	enough      = 8
	enoughLimit = time.Minute
)

func (s *saboteur) disturb(ctx context.Context, step plan.Step, r *rand.Rand, pause func()) {
	var broken atomic.Int64
	i := world.injectors[step.Target]
	i.Set(disturb(r, &broken))
	began := time.Now()
	for pause(); broken.Load() < enough && time.Since(began) < enoughLimit && ctx.Err() == nil; {
		time.Sleep(200 * time.Millisecond)
	}
	i.Set(nil)
	s.note("%s: %d requests were broken in %s", step, broken.Load(), time.Since(began).Round(time.Second))
}

// whole waits until everything runs and is connected.
func whole(t testing.TB) {
	t.Helper()
	for _, p := range world.proxies {
		if err := p.Heal(); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range world.replicas {
		if err := again(r.Restart); err != nil {
			t.Fatalf("replica %d: %v", i+1, err)
		}
	}
	client, err := dynamicOf(world.System)
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 4*time.Minute, func(ctx context.Context) error {
		list, err := client.Resource(clusters).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			for _, condition := range []string{"Ready", "CacheSynced"} {
				if got := conditionOf(&c, condition); got != "True" {
					return fmt.Errorf("%s of %s is %s", condition, c.GetName(), got)
				}
			}
		}
		return nil
	})
}
