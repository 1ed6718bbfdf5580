package sequencer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

func TestDecide(t *testing.T) {
	start := time.Unix(1000, 0)
	me := Self{Identity: "a:1#x", Follows: true, HasState: true}
	with := func(change func(*Self)) Self { s := me; change(&s); return s }
	led := with(func(s *Self) { s.Renewed = start })
	fresh := with(func(s *Self) { s.Follows, s.HasState = false, false })
	other := Seen{Holder: "b:1#y", Epoch: 3, Since: start, For: leaseFor}
	own := Seen{Holder: me.Identity, Epoch: 3, Since: start, For: leaseFor}
	for name, tc := range map[string]struct {
		seen  Seen
		me    Self
		after time.Duration
		want  Action
	}{
		"the first of all":                {Seen{Since: start}, fresh, 0, Take},
		"another has it":                  {other, me, leaseFor - 1, Wait},
		"another does not renew":          {other, me, leaseFor, Take},
		"without state, later":            {other, fresh, leaseFor + patience - 1, Wait},
		"without state, at last":          {other, fresh, leaseFor + patience, Take},
		"given up":                        {Seen{Epoch: 3, Since: start, For: leaseFor}, me, 0, Take},
		"given up, without state":         {Seen{Epoch: 3, Since: start, For: leaseFor}, fresh, patience - 1, Wait},
		"an earlier process of here":      {Seen{Holder: "a:1#z", Epoch: 3, Since: start, For: leaseFor}, me, 0, Take},
		"the same, without state":         {Seen{Holder: "a:1#z", Epoch: 3, Since: start, For: leaseFor}, fresh, 0, Wait},
		"renewed a moment ago":            {own, led, renewEvery - 1, Wait},
		"to be renewed":                   {own, led, renewEvery, Renew},
		"run out, and nobody has it":      {own, led, time.Hour, Renew},
		"another has taken over":          {other, led, 0, Deposed},
		"an earlier attempt came through": {own, me, 0, Renew},
	} {
		if got := Decide(start.Add(tc.after), tc.seen, tc.me); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// A holder stops before anybody else may begin.
func TestNeverTwo(t *testing.T) {
	sent := time.Unix(1000, 0)
	seen := Seen{Holder: "b:1#y", Epoch: 1, Since: sent, For: leaseFor} // seen no earlier than it was sent
	for d := time.Duration(0); d < 30*time.Second; d += 100 * time.Millisecond {
		now := sent.Add(d)
		if Valid(now, sent) && Decide(now, seen, Self{Identity: "a:1#x", Follows: true, HasState: true}) == Take {
			t.Fatalf("two may number events %s after a renewal", d)
		}
	}
}

// control is a control plane with one Lease, which may be out of reach.
type control struct {
	mu    sync.Mutex
	lease *coordinationv1.Lease
	rv    int
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// reach is how one replica sees it.
type reach struct {
	*control
	cut bool
}

var errCut = errors.New("cut off")

func (r *reach) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cut:
		return nil, errCut
	case r.lease == nil:
		return nil, apierrors.NewNotFound(leases, name)
	}
	return r.lease.DeepCopy(), nil
}

func (r *reach) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return r.write(l)
}

func (r *reach) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return r.write(l)
}

func (r *reach) write(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut {
		return nil, errCut
	}
	if r.lease != nil && r.lease.ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(leases, l.Name, errors.New("written meanwhile"))
	}
	r.rv++
	r.lease = l.DeepCopy()
	r.lease.ResourceVersion = string(rune('a'+r.rv%26)) + time.Now().String()
	return r.lease.DeepCopy(), nil
}

func (r *reach) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

// Never do two hold the Lease, whoever is cut off; one that is replaced ends.
func TestElectors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &control{}
		full := func() (bool, bool) { return true, true }
		ra, rb := &reach{control: c}, &reach{control: c}
		a := New(ra, "gateway", "a:1", clock.RealClock{}, full)
		b := New(rb, "gateway", "b:1", clock.RealClock{}, full)
		ends := make(chan error, 2)
		go func() { ends <- a.Run(ctx) }()
		<-a.Elected()
		go func() { ends <- b.Run(ctx) }()
		check := func(d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if a.Holds() == nil && b.Holds() == nil {
					t.Fatal("two hold the Lease")
				}
			}
		}
		check(30 * time.Second)
		if address, epoch := b.Leader(); a.Holds() != nil || address != "a:1" || epoch != 1 {
			t.Fatalf("the first holds it: %v; the other knows %q of epoch %d", a.Holds(), address, epoch)
		}
		ra.set(true)
		check(leaseFor - margin - renewEvery)
		check(leaseFor + margin)
		if epoch, err := b.Leading(); err != nil || epoch != 2 || a.Holds() == nil {
			t.Fatalf("after the first was cut off: epoch %d, %v; the first: %v", epoch, err, a.Holds())
		}
		ra.set(false)
		if err := <-ends; !errors.Is(err, ErrDeposed) {
			t.Fatalf("the first ended with %v", err)
		}
		rb.set(true) // out of reach for long, but nobody takes over
		check(time.Minute)
		if b.Holds() == nil {
			t.Fatal("it goes by a Lease that has run out")
		}
		rb.set(false)
		check(2 * time.Second)
		if epoch, err := b.Leading(); err != nil || epoch != 2 {
			t.Fatalf("it goes on in epoch %d, %v", epoch, err)
		}
		b.Leave()
		if err := b.Release(ctx); err != nil || b.Holds() == nil {
			t.Fatalf("release: %v, holds %v", err, b.Holds())
		}
	})
}
