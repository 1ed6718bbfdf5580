package soak

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
	"github.com/isthmus-dev/isthmus/e2e/soak/plan"
	"github.com/isthmus-dev/isthmus/e2e/soak/stream"
	"github.com/isthmus-dev/isthmus/e2e/soak/trend"
)

// load of a run.
type load struct {
	informers, rate, replicas int
	duration                  time.Duration
}

func loadOf() load {
	if size.long {
		return load{informers: 50, rate: 200, replicas: 20, duration: size.duration}
	}
	return load{informers: 10, rate: 40, replicas: 6, duration: size.duration}
}

// grows is what a process may grow by in a minute, after three.
const (
	grows    = 1.0 // MiB
	warmedUp = 3 * time.Minute
)

// Under load, with a member that comes and goes, no watcher loses an event or
// gets one twice, no answer is wrong, and no process grows.
func TestLoad(t *testing.T) {
	d, l := newDiary(t), loadOf()
	d.note("SOAK_SEED=%d SOAK_DURATION=%s: %+v", size.seed, size.duration, l)
	whole(t)
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	awaitNamespace(t, ns)
	deployLoad(t, ns, l.replicas)
	config := labtest.Config(t, world.System)
	followers := follow(t, config, ns, l.informers)
	c := newTraffic(ns, config)
	busy, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	memory := &memory{began: time.Now()}
	wg.Go(func() { c.run(busy, l.rate, size.seed) })
	wg.Go(func() { memory.sample(busy) })
	s := newSaboteur(d)
	flaps := []plan.Fault{
		{Kind: "freeze", Targets: []string{flapping}, Least: 4 * time.Second, Most: 10 * time.Second},
		{Kind: "cut off", Targets: []string{flapping}, Least: 4 * time.Second, Most: 10 * time.Second},
		{Kind: "kill", Targets: []string{flapping}, Least: time.Second, Most: 4 * time.Second},
		{Kind: "silence", Targets: []string{flapping}, Least: 4 * time.Second, Most: 10 * time.Second},
	}
	began := time.Now()
	s.run(t.Context(), plan.Deal(size.seed, flaps, 8*time.Second, l.duration-15*time.Second), size.seed)
	time.Sleep(time.Until(began.Add(l.duration)))
	stop()
	wg.Wait()
	took := time.Since(began)
	whole(t)
	d.note("%d changes of %s; requests %v in %s", len(s.counts), flapping, c.counts, took.Round(time.Second))
	if s.restart > 0 {
		t.Errorf("%d processes have ended by themselves", s.restart)
	}
	agreed(t, d, ns, followers)
	promises(t, d, c, followers)
	c.report(t, int(took.Seconds())*l.rate/8)
	memory.judge(t, d)
	compared(t, d)
}

// deployLoad runs Pods in every member.
func deployLoad(t testing.TB, ns string, replicas int) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: load}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: load}]
  placement:
    clusterAffinity: {clusterNames: [%s]}
    replicaScheduling: {replicaSchedulingType: Duplicated}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: load}
spec:
  replicas: %d
  selector: {matchLabels: {app: load}}
  template:
    metadata: {labels: {app: load, tier: a}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: "registry.example.com/c:1"}]
`, strings.Join(names, ", "), replicas)
	admin := world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, manifest, "-n", ns, "apply", "-f", "-")
	client := labtest.Client(t, world.System)
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(ns).Get(ctx, "load", metav1.GetOptions{})
		if err == nil && int(d.Status.AvailableReplicas) != replicas*len(names) {
			err = fmt.Errorf("%d of %d Pods are available", d.Status.AvailableReplicas, replicas*len(names))
		}
		return err
	})
}

// collection is one LIST that followers follow.
type collection struct{ resource, query string }

var collections = []collection{{"pods", ""}, {"pods", "labelSelector=tier%3Da"}, {"configmaps", ""}}

// follow starts informers until the end of the test; they know the whole state
// when it returns.
func follow(t testing.TB, config *rest.Config, ns string, n int) map[collection][]*follower {
	t.Helper()
	config = rest.CopyConfig(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	out := map[collection][]*follower{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg, began sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	began.Add(n)
	for i := range n {
		of := collections[i%len(collections)]
		path := fmt.Sprintf("/api/v1/namespaces/%s/%s?%s", ns, of.resource, of.query)
		f := newFollower(fmt.Sprintf("informer %d of %s %s", i, of.resource, of.query), config, client, path, i/len(collections)%2 == 0, size.seed+uint64(i))
		out[of] = append(out[of], f)
		wg.Go(func() { f.run(ctx, &began) })
	}
	began.Wait()
	return out
}

// there is what the sources have of a collection, by UID.
func there(ctx context.Context, ns string, of collection) (map[string]string, error) {
	out := map[string]string{}
	read := func(cluster string, config *rest.Config) error {
		a, err := labtest.Request(ctx, config, "GET", fmt.Sprintf("/api/v1/namespaces/%s/%s?%s", ns, of.resource, of.query), nil, "Accept", "application/json")
		if err != nil {
			return err
		}
		items, err := itemsOf(a)
		for _, item := range items {
			out[string(item.Metadata.UID)] = item.content(cluster)
		}
		return err
	}
	if of.resource == "configmaps" {
		config, err := world.replicas[1].RESTConfig()
		if err != nil {
			return nil, err
		}
		return out, read("", config)
	}
	for _, m := range world.Members {
		config, err := m.RESTConfig()
		if err != nil {
			return nil, err
		}
		if err := read(m.Name(), config); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// agreed waits until every informer holds what its sources have.
func agreed(t *testing.T, d *diary, ns string, followers map[collection][]*follower) {
	t.Helper()
	held := 0
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		held = 0
		for of, list := range followers {
			want, err := there(ctx, ns, of)
			if err != nil {
				return err
			}
			for _, f := range list {
				f.mu.Lock()
				now := f.Held()
				f.mu.Unlock()
				if found := stream.Differ(now, want); len(found) > 0 {
					time.Sleep(500 * time.Millisecond)
					return fmt.Errorf("%s: %d differences: %v", f.Name(), len(found), found[:min(len(found), 5)])
				}
				held += len(now)
			}
		}
		return nil
	})
	d.note("informers hold %d objects, as the clusters have them", held)
}

// promises looks at what every informer was told.
func promises(t *testing.T, d *diary, c *traffic, followers map[collection][]*follower) {
	t.Helper()
	events, resumes, bookmarks, lost := 0, 0, 0, 0
	for of, list := range followers {
		var watchers []*stream.Watcher
		c.mu.Lock()
		written := c.written[of.resource]
		if of.query != "" {
			var selected []stream.Content
			for _, w := range written {
				if c.tier[w] == "a" {
					selected = append(selected, w)
				}
			}
			written = selected
		}
		c.mu.Unlock()
		for _, f := range list {
			f.mu.Lock()
			defer f.mu.Unlock()
			watchers = append(watchers, f.Watcher)
			events, resumes, bookmarks, lost = events+f.Events, resumes+f.Resumes, bookmarks+f.Bookmarks, lost+f.lost
			for _, problem := range append(f.Problems(), f.errors...) {
				t.Errorf("%s: %s", f.Name(), problem)
			}
			if f.Lists != 1 {
				t.Errorf("%s listed %d times", f.Name(), f.Lists)
			}
			if missed := f.Missed(written); len(missed) > 0 {
				t.Errorf("%s missed %d of %d acknowledged writes, among them %v", f.Name(), len(missed), len(written), missed[:min(len(missed), 5)])
			}
		}
		for i, problem := range stream.Agree(watchers) {
			if i == 10 {
				break
			}
			t.Error(problem)
		}
	}
	d.note("%d events, %d watches taken up, %d bookmarks, %d connections lost", events, resumes, bookmarks, lost)
	if events == 0 || resumes == 0 || bookmarks == 0 {
		t.Errorf("the run shows too little: %d events, %d watches taken up, %d bookmarks", events, resumes, bookmarks)
	}
}

// memory of the processes over the run.
type memory struct {
	began  time.Time
	points map[string][]trend.Point
}

func (m *memory) sample(ctx context.Context) {
	m.points = map[string][]trend.Point{}
	for ctx.Err() == nil {
		for name, pid := range map[string]int{
			"endpoint": world.replicas[0].PID(endpoint), "second endpoint": world.replicas[1].PID(endpoint), gateway: world.replicas[0].PID(gateway),
		} {
			if kib, err := resident(pid); err == nil {
				m.points[name] = append(m.points[name], trend.Point{At: time.Since(m.began), Value: float64(kib) / 1024})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

// resident is the memory of a process in KiB.
func resident(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

func (m *memory) judge(t *testing.T, d *diary) {
	t.Helper()
	for name, points := range m.points {
		last := points[len(points)-1]
		slope, ok := trend.PerMinute(points, warmedUp)
		d.note("%s: %.0f MiB, %+.2f MiB a minute after minute 3 (%t)", name, last.Value, slope, ok)
		if ok && size.long && slope > grows {
			t.Errorf("%s grows by %.2f MiB a minute", name, slope)
		}
	}
}
