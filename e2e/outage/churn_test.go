package outage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// churner changes Pods, in the members and through the endpoint.
type churner struct {
	ns       string
	rand     *rand.Rand
	round    *round
	endpoint kubernetes.Interface
	members  map[string]kubernetes.Interface

	mu         sync.Mutex
	allowed    map[string]bool
	paused     bool
	generation int // times the endpoint was paused or resumed
	done       map[string]int
	failures   []string
}

func newChurner(t testing.TB, ns string, seed uint64, r *round) *churner {
	c := &churner{
		ns: ns, rand: newRand(seed), round: r, endpoint: labtest.Client(t, world.System), members: map[string]kubernetes.Interface{},
		allowed: map[string]bool{"m1": true, "m2": true}, done: map[string]int{},
	}
	for name, m := range r.members {
		c.members[name] = labtest.Client(t, m)
	}
	return c
}

// allow lets changes happen in a member, or not.
func (c *churner) allow(member string, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed[member] = yes
}

// pause says that the endpoint goes down or is back.
func (c *churner) pause(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = yes
	c.generation++
}

func (c *churner) endpointUp() (generation int, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation, !c.paused
}

func (c *churner) allows(member string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allowed[member]
}

func (c *churner) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(size.churn))
	defer tick.Stop()
	for step := 0; ; step++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.change(ctx, step)
		}
	}
}

// change patches or deletes one Pod, chosen by the seed.
func (c *churner) change(ctx context.Context, step int) {
	var names []string
	for _, name := range []string{"m1", "m2", "m3"} {
		if c.allows(name) {
			names = append(names, name)
		}
	}
	member := names[c.rand.IntN(len(names))]
	through, remove := c.rand.IntN(2) == 0, c.rand.IntN(10) < 3
	generation, up := c.endpointUp()
	if through && !up {
		through = false
	}
	pod, ok := c.pick(member, through)
	if !ok {
		return
	}
	client, way := c.members[member], "direct"
	if through {
		client, way = c.endpoint, "endpoint"
	}
	limited, cancel := context.WithTimeout(ctx, within(5*time.Second))
	defer cancel()
	var err error
	verb := "patch"
	if remove {
		verb = "delete"
		err = client.CoreV1().Pods(c.ns).Delete(limited, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	} else {
		_, err = client.CoreV1().Pods(c.ns).Patch(limited, pod.Name, types.MergePatchType, stepPatch(step), metav1.PatchOptions{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.done[way+" "+verb]++
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), ctx.Err() != nil: // gone already, or the end of the test
	case c.generation == generation && c.allowed[member]: // nothing was down
		c.failures = append(c.failures, fmt.Sprintf("%s %s of a Pod of %s: %v", way, verb, member, err))
	}
}

// pick chooses a Pod of a member, under the name that it has on that way.
func (c *churner) pick(member string, through bool) (*corev1.Pod, bool) {
	store := c.round.direct[member]
	if through {
		store = c.round.served["WatchList"]
	}
	var pods []*corev1.Pod
	for _, item := range store.List() {
		pod := item.(*corev1.Pod)
		if pod.DeletionTimestamp == nil && !strings.HasPrefix(pod.Name, beaconName) && (!through || pod.Labels[clusterLabel] == member) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return nil, false
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods[c.rand.IntN(len(pods))], true
}

// report fails the test for changes that failed while nothing was down, and
// when a way was not used at all.
func (c *churner) report(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("changes: %v", c.done)
	for i, failure := range c.failures {
		if i == 10 {
			t.Errorf("and %d more failures", len(c.failures)-i)
			break
		}
		t.Error(failure)
	}
	for _, way := range []string{"direct patch", "direct delete", "endpoint patch", "endpoint delete"} {
		if c.done[way] == 0 {
			t.Errorf("no %s was made", way)
		}
	}
}
