package journey

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// record notes who leads, and complains when two do.
type record struct {
	t  *testing.T
	mu sync.Mutex
	// leads holds those who lead now, order those who ever did.
	leads, order []string
}

func (r *record) begin(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads, r.order = append(r.leads, id), append(r.order, id)
	if len(r.leads) > 1 {
		r.t.Errorf("%v lead at the same time", r.leads)
	}
}

func (r *record) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = slices.DeleteFunc(r.leads, func(l string) bool { return l == id })
}

func (r *record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order)
}

// Programs that elect a leader by a Lease of the endpoint have exactly one, and
// another one when it leaves.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	client := labtest.Client(t, world.System)
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	r := &record{t: t}
	stops := map[string]context.CancelFunc{}
	var group sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		ctx, cancel := context.WithCancel(t.Context())
		stops[id] = cancel
		group.Go(func() { elect(ctx, t, client, ns, id, r) })
	}
	defer group.Wait()
	for n := 1; n <= len(stops); n++ {
		labtest.Eventually(t, 30*time.Second, func(context.Context) error {
			if r.count() < n {
				return context.DeadlineExceeded
			}
			return nil
		})
		r.mu.Lock()
		leader := r.order[n-1]
		r.mu.Unlock()
		stops[leader]()
	}
}

func elect(ctx context.Context, t *testing.T, client kubernetes.Interface, ns, id string, r *record) {
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "election"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 5 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { r.begin(id) },
			OnStoppedLeading: func() { r.end(id) },
		},
	})
	if ctx.Err() == nil {
		t.Errorf("%s gave up by itself", id)
	}
}

// A Lease is locked by its resourceVersion, to the microsecond.
func TestLeaseIsLockedStrictly(t *testing.T) {
	t.Parallel()
	client := labtest.Client(t, world.System)
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC))
	lease, err := client.CoordinationV1().Leases(ns).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "strict"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Spec.RenewTime.Equal(&at) {
		t.Errorf("renewed at %v, want %v", lease.Spec.RenewTime, at)
	}
	var wins int
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, holder := range []string{"a", "b", "c", "d"} {
		group.Go(func() {
			mine := lease.DeepCopy()
			mine.Spec.HolderIdentity = new(holder)
			_, err := client.CoordinationV1().Leases(ns).Update(t.Context(), mine, metav1.UpdateOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				wins++
			case !apierrors.IsConflict(err):
				t.Errorf("%s: %v", holder, err)
			}
		})
	}
	group.Wait()
	if wins != 1 {
		t.Errorf("%d of 4 updates of one resourceVersion were accepted", wins)
	}
}
