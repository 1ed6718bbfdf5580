package chain

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// collector gathers the events of one watch.
type collector struct {
	mu     sync.Mutex
	events []watch.Event
}

func collect(t testing.TB, ns string) *collector {
	t.Helper()
	pods := endpoint(t).CoreV1().Pods(ns)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := range w.ResultChan() {
			c.mu.Lock()
			c.events = append(c.events, e)
			c.mu.Unlock()
		}
	})
	t.Cleanup(func() { w.Stop(); wg.Wait() })
	return c
}

// seen are the events so far, as TYPE NAME RV.
func (c *collector) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, e := range c.events {
		if p, ok := e.Object.(*corev1.Pod); ok {
			out = append(out, fmt.Sprintf("%s %s %s", e.Type, p.Name, p.ResourceVersion))
		}
	}
	return out
}

func (c *collector) uids(name string) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []types.UID
	for _, e := range c.events {
		if p, ok := e.Object.(*corev1.Pod); ok && p.Name == name && !slices.Contains(out, p.UID) {
			out = append(out, p.UID)
		}
	}
	return out
}

// The resourceVersion of a write's answer is the one of its watch event; a
// re-created object has another UID; all watchers see one order, which grows.
func TestWritesAndWatches(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	first, second := collect(t, ns), collect(t, ns)
	var mu sync.Mutex
	var answers []string
	answered := func(kind watch.EventType, p *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, fmt.Sprintf("%s %s %s", kind, p.Name, p.ResourceVersion))
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("web-%d", i)
			for range 2 {
				writeOnce(t, ns, inCluster(pod(name), []string{"m1", "m2"}[i%2]), answered)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		a, b := first.seen(), second.seen()
		for _, want := range answers {
			if !slices.Contains(a, want) {
				return fmt.Errorf("no event for the answer %q in %q", want, a)
			}
		}
		if !slices.Equal(a, b) {
			return fmt.Errorf("two orders:\n%q\n%q", a, b)
		}
		return nil
	})
	checkGrowing(t, first)
	for i := range 4 {
		if uids := first.uids(fmt.Sprintf("web-%d", i)); len(uids) != 2 {
			t.Errorf("web-%d had the UIDs %v, want two", i, uids)
		}
	}
}

// writeOnce creates, changes and deletes a Pod and says what was answered.
func writeOnce(t *testing.T, ns string, p *corev1.Pod, answered func(watch.EventType, *corev1.Pod)) {
	pods := endpoint(t).CoreV1().Pods(ns)
	made, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("create %s: %v", p.Name, err)
		return
	}
	answered(watch.Added, made)
	for i := range 3 {
		body := fmt.Sprintf(`{"metadata":{"labels":{"round":"%d"}}}`, i)
		changed, err := pods.Patch(t.Context(), p.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		if err != nil {
			t.Errorf("patch %s: %v", p.Name, err)
			return
		}
		answered(watch.Modified, changed)
	}
	if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Errorf("delete %s: %v", p.Name, err)
	}
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there: %w", p.Name, err)
		}
		return nil
	})
}

func checkGrowing(t *testing.T, c *collector) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	last := "1"
	for _, e := range c.events {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		order, err := resourceversion.CompareResourceVersion(last, p.ResourceVersion)
		if err != nil || order >= 0 {
			t.Errorf("%s %s: resourceVersion %s after %s (%v)", e.Type, p.Name, p.ResourceVersion, last, err)
		}
		last = p.ResourceVersion
	}
}

// A finalizer holds a Pod, with its deletionTimestamp and generation as the
// member has them, until it is taken off.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	p := inCluster(pod("web"), "m2")
	p.Finalizers = []string{"example.com/hold"}
	running(t, ns, p)
	pods := endpoint(t).CoreV1().Pods(ns)
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	served, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held, err := labtest.Client(t, world.Member("m2")).CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if served.DeletionTimestamp == nil || !served.DeletionTimestamp.Equal(held.DeletionTimestamp) || !slices.Equal(served.Finalizers, p.Finalizers) ||
		served.Generation != held.Generation || served.UID != held.UID {
		t.Errorf("served %+v\nheld %+v", served.ObjectMeta, held.ObjectMeta)
	}
	if _, err := pods.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		if _, err := pods.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("still there: %w", err)
		}
		return nil
	})
}

// Of many creations of one name at once exactly one succeeds, over all clusters.
func TestCreationsAtOnce(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	running(t, ns, pod("warm")) // the namespace is in the members
	pods := endpoint(t).CoreV1().Pods(ns)
	const writers = 20
	results := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			_, results[i] = pods.Create(t.Context(), inCluster(pod("one"), []string{"m1", "m2"}[i%2]), metav1.CreateOptions{})
		})
	}
	wg.Wait()
	made := 0
	for _, err := range results {
		switch {
		case err == nil:
			made++
		case !apierrors.IsAlreadyExists(err):
			t.Errorf("a loser got %v", err)
		}
	}
	held := 0
	for _, m := range world.Members {
		_, err := labtest.Client(t, m).CoreV1().Pods(ns).Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil {
			held++
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if made != 1 || held != 1 {
		t.Errorf("%d creations succeeded, %d members hold the Pod", made, held)
	}
}
