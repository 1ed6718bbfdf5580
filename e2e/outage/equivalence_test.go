package outage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	// staleLimit is the greatest age of a difference.
	staleLimit = 3 * time.Second
	// settleLimit is how long after an outage both sides may still be
	// reconnecting: informers wait up to 30 s between attempts.
	settleLimit = 45 * time.Second
	// recoveryLimit is how long after an outage the endpoint may take to
	// follow the member again.
	recoveryLimit = 10 * time.Second
	beaconName    = "beacon"
	// deployments a member's Pods belong to.
	deployments = 6
)

// Two informers on the endpoint hold what the members hold, while members and
// the endpoint itself fail and come back.
func TestInformerEquivalence(t *testing.T) {
	awaitLive(t, "m1", "m2")
	members := []*lab.Member{world.m1, world.m2, world.m3}
	ns := memberNamespace(t, "equal", members...)
	seed := uint64(time.Now().UnixNano())
	r := newRound(t, ns, seed, members)
	r.note("seed %d, %d Pods, %d changes a second", seed, size.pods, size.churn)
	r.run(t)
}

// round is one run of the comparison.
type round struct {
	t       testing.TB
	ns      string
	started time.Time
	direct  map[string]cache.Store
	served  map[string]cache.Store // by the informer's name
	members map[string]*lab.Member
	judge   *judge
	churn   *churner
}

func newRound(t testing.TB, ns string, seed uint64, members []*lab.Member) *round {
	t.Helper()
	r := &round{
		t: t, ns: ns, started: time.Now(), direct: map[string]cache.Store{}, served: map[string]cache.Store{},
		members: map[string]*lab.Member{}, judge: newJudge(within(staleLimit)),
	}
	for i, m := range members {
		r.members[m.Name()] = m
		share := size.pods / 2
		if i == 2 {
			share = size.pods / 4
		}
		deploy(t, m, ns, share)
		r.direct[m.Name()] = informer(t, labtest.Client(t, m), ns, true)
	}
	for name, watchList := range map[string]bool{"WatchList": true, "LIST and WATCH": false} {
		r.served[name] = informer(t, labtest.Client(t, world.System), ns, watchList)
	}
	r.judge.set("m1", live)
	r.judge.set("m2", live)
	r.judge.set("m3", absent)
	r.churn = newChurner(t, ns, seed, r)
	return r
}

func (r *round) note(format string, args ...any) {
	r.t.Logf("%6.1fs %s", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}

// informer follows the Pods of a namespace until the end of the test.
func informer(t testing.TB, client kubernetes.Interface, ns string, watchList bool) cache.Store {
	t.Helper()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods(ns).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			return client.CoreV1().Pods(ns).Watch(ctx, options)
		},
	}
	source := cache.ToListWatcherWithWatchListSemantics(lw, client)
	if !watchList {
		source = cache.ToListWatcherWithWatchListSemantics(lw, noWatchList{})
	}
	inf := cache.NewSharedInformer(source, &corev1.Pod{}, 0)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	labtest.Eventually(t, within(30*time.Second), func(context.Context) error {
		if !inf.HasSynced() {
			return fmt.Errorf("the informer has not synced")
		}
		return nil
	})
	return inf.GetStore()
}

// noWatchList is a client that cannot do WatchList.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// deploy makes Deployments with so many Pods in a member and waits for them.
func deploy(t testing.TB, m *lab.Member, ns string, pods int) {
	t.Helper()
	client := labtest.Client(t, m)
	for i := range deployments {
		replicas := int32(pods / deployments)
		name := fmt.Sprintf("d%d", i)
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: barePod(ns, name).Spec},
			},
		}
		if _, err := client.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Deployment in %s: %v", m.Name(), err)
		}
	}
	labtest.Eventually(t, within(30*time.Second)+time.Duration(pods)*50*time.Millisecond, func(ctx context.Context) error {
		list, err := client.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, d := range list.Items {
			ready += int(d.Status.ReadyReplicas)
		}
		if want := pods / deployments * deployments; ready != want {
			return fmt.Errorf("%s has %d Pods that are ready, want %d", m.Name(), ready, want)
		}
		return nil
	})
}

// run takes the members and the endpoint down in turn, comparing all the while.
func (r *round) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.compare(ctx, t) })
	r.settle(t, "m1", "m2")
	wg.Go(func() { r.churn.run(ctx) })
	wg.Go(func() { r.probe(ctx, t) })
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"quiet", func(*testing.T) { time.Sleep(5 * time.Second) }},
		{"freeze and thaw", r.freezeAndThaw},
		{"kill and restart", r.killAndRestart},
		{"join and unjoin", r.joinAndUnjoin},
		{"kill the endpoint", r.killEndpoint},
		{"end", func(*testing.T) { time.Sleep(5 * time.Second) }},
	} {
		r.note("%s", step.name)
		step.run(t)
		if t.Failed() {
			return
		}
	}
	cancel()
	wg.Wait()
	r.churn.report(t)
	compared, pods, passing, oldest := r.judge.summary()
	r.note("%d comparisons of %d Pods, %d differences in passing, the oldest of a live member was %s", compared, pods, passing, oldest)
	if compared < 20 || pods < compared*size.pods/2 {
		t.Errorf("%d comparisons of %d Pods are too few", compared, pods)
	}
	if passing == 0 {
		t.Error("no difference was seen, not even while the endpoint was down")
	}
}

// compare judges once a second.
func (r *round) compare(ctx context.Context, t *testing.T) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			want := map[string]view{}
			for name, store := range r.direct {
				want[name] = directView(store)
			}
			for name, store := range r.served {
				for _, problem := range r.judge.compare(now, name, want, servedView(store)) {
					r.note("DIFFERENCE %s: %s", name, problem)
					t.Errorf("informer by %s: %s", name, problem)
				}
			}
		}
	}
}

// settle waits until nothing differs, then holds members to the limit.
func (r *round) settle(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		r.judge.set(name, settling)
	}
	labtest.Eventually(t, within(settleLimit), func(context.Context) error {
		for informer := range r.served {
			for _, name := range names {
				if n := r.judge.differing(informer, name); n != 0 {
					return fmt.Errorf("%d Pods of %s differ in the informer by %s", n, name, informer)
				}
			}
		}
		return nil
	})
	for _, name := range names {
		r.judge.set(name, live)
	}
	r.note("settled: %v", names)
}

// beacon makes a Pod in a member and waits until everybody knows it: equality
// alone may be that of two sides that are both still cut off.
func (r *round) beacon(t *testing.T, name string) {
	t.Helper()
	r.judge.set(name, settling)
	pod := barePod(r.ns, labtest.UniqueName(t, beaconName))
	client := labtest.Client(t, r.members[name])
	labtest.Eventually(t, within(settleLimit), func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(r.ns).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	lit := time.Now()
	labtest.Eventually(t, within(settleLimit), func(context.Context) error {
		for informer, store := range r.served {
			if _, ok, err := store.GetByKey(r.ns + "/" + pod.Name); err != nil || !ok {
				return fmt.Errorf("a new Pod of %s is not in the informer by %s (%v)", name, informer, err)
			}
		}
		return nil
	})
	late := time.Since(lit)
	r.note("a new Pod of %s is served after %s", name, late.Round(time.Millisecond))
	if late > within(recoveryLimit) {
		t.Errorf("a new Pod of %s is served %s after the outage, want at most %s", name, late, recoveryLimit)
	}
	labtest.Eventually(t, within(settleLimit), func(context.Context) error {
		if _, ok, err := r.direct[name].GetByKey(r.ns + "/" + pod.Name); err != nil || !ok {
			return fmt.Errorf("a new Pod of %s is not in the direct informer (%v)", name, err)
		}
		return nil
	})
}

// quieten stops our changes in a member and waits until both sides have seen
// the last of them, so that what is last known is the same on both.
func (r *round) quieten(t *testing.T, name string) {
	t.Helper()
	r.churn.allow(name, false)
	time.Sleep(2 * time.Second)
	r.settle(t, name)
}

func (r *round) freezeAndThaw(t *testing.T) {
	r.quieten(t, "m2")
	thaw := freeze(t, world.m2)
	time.Sleep(size.outage)
	thaw()
	r.note("thawed")
	r.churn.allow("m2", true)
	r.beacon(t, "m2")
	r.settle(t, "m2")
	time.Sleep(3 * time.Second)
}

func (r *round) killAndRestart(t *testing.T) {
	r.quieten(t, "m2")
	revive := kill(t, world.m2)
	time.Sleep(5 * time.Second)
	revive()
	r.note("revived")
	r.churn.allow("m2", true)
	r.beacon(t, "m2")
	r.settle(t, "m2")
	time.Sleep(3 * time.Second)
}

func (r *round) joinAndUnjoin(t *testing.T) {
	r.judge.set("m3", settling)
	joinM3(t)
	r.note("joined")
	r.settle(t, "m3")
	r.churn.allow("m3", true)
	time.Sleep(5 * time.Second)
	r.churn.allow("m3", false)
	r.judge.set("m3", settling)
	command(t, "unjoin", "m3")
	r.judge.set("m3", absent)
	r.note("unjoined")
	time.Sleep(5 * time.Second)
}

func (r *round) killEndpoint(t *testing.T) {
	r.churn.pause(true)
	r.judge.set("m1", settling)
	r.judge.set("m2", settling)
	restartEndpoint(t)
	r.note("the endpoint is back")
	r.churn.pause(false)
	r.beacon(t, "m1")
	r.beacon(t, "m2")
	r.settle(t, "m1", "m2")
}

// probe asks as a client does, once a second: while the endpoint runs, no read
// fails or is late, whatever a member does.
func (r *round) probe(ctx context.Context, t *testing.T) {
	config := labtest.Config(t, world.System)
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		generation, up := r.churn.endpointUp()
		started := time.Now()
		a, err := ask(ctx, config, "/api/v1/namespaces/"+r.ns+"/pods?limit=50")
		if after, stillUp := r.churn.endpointUp(); !up || !stillUp || after != generation || ctx.Err() != nil {
			continue
		}
		if took := time.Since(started); err != nil || a.code != 200 || took > within(prompt) {
			r.note("a LIST answered %d after %s, %v", a.code, took, err)
			t.Errorf("a LIST answered %d after %s, %v; want 200 within %s", a.code, took, err, prompt)
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
