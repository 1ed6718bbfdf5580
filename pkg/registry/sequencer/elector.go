package sequencer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

var (
	// ErrDeposed says that another replica has taken over: this process ends, and
	// begins anew as one that follows.
	ErrDeposed = errors.New("another gateway numbers the events now, this process starts anew")
	// ErrNotLeading says that another replica numbers the events, or none.
	ErrNotLeading = errors.New("this gateway does not number the events")
	// ErrLeaseOver says that the Lease could not be renewed in time.
	ErrLeaseOver = errors.New("the Lease of this gateway may have run out")
)

const (
	stepEvery = 500 * time.Millisecond
	askWait   = 3 * time.Second
	// releaseTries is how often a Lease is given up that is written meanwhile.
	releaseTries = 3
)

// Leases reads and writes the Lease.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Elector holds the Lease, or knows who does.
type Elector struct {
	leases Leases
	name   string
	now    clock.WithTicker
	// state says whether the holder's log, or any state, is here.
	state func() (follows, has bool)

	mu       sync.Mutex
	identity string
	lease    *coordinationv1.Lease // as read last; nil before
	seen     Seen
	renewed  time.Time
	epoch    uint64 // in which this replica leads
	elected  chan struct{}
	leaving  bool
}

// New makes an elector for the replica that others reach at an address.
func New(leases Leases, name, address string, now clock.WithTicker, state func() (follows, has bool)) *Elector {
	return &Elector{
		leases: leases, name: name, now: now, state: state,
		identity: address + identitySeparator + uuid.NewString(), elected: make(chan struct{}),
	}
}

// Elected is closed when this replica takes the Lease.
func (e *Elector) Elected() <-chan struct{} { return e.elected }

// Leading gives the epoch in which this replica numbers the events.
func (e *Elector) Leading() (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.renewed.IsZero():
		return 0, ErrNotLeading
	case !Valid(e.now.Now(), e.renewed):
		return 0, ErrLeaseOver
	}
	return e.epoch, nil
}

// Holds answers nil while this replica may give out numbers.
func (e *Elector) Holds() error {
	_, err := e.Leading()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.leaving {
		return ErrNotLeading
	}
	return err
}

// Lapsed says since when a holder of the Lease could not renew it in time.
func (e *Elector) Lapsed() (since time.Time, lapsed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.renewed.IsZero() || Valid(e.now.Now(), e.renewed) {
		return time.Time{}, false
	}
	return e.renewed, true
}

// Leader gives the address of the replica that holds the Lease, empty where none
// does, and the highest epoch that was seen.
func (e *Elector) Leader() (string, uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return address(e.seen.Holder), e.seen.Epoch
}

// Run takes and renews the Lease until ctx ends, or another replica has it.
func (e *Elector) Run(ctx context.Context) error {
	tick := e.now.NewTicker(stepEvery)
	defer tick.Stop()
	for {
		if err := e.step(ctx); errors.Is(err, ErrDeposed) {
			return err
		} else if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Lease of the gateways is not reached, will retry", "lease", e.name, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// Leave stops giving out numbers; Release then lets another replica go on.
func (e *Elector) Leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaving = true
}

// Release gives the Lease up, if this replica has it.
func (e *Elector) Release(ctx context.Context) error {
	if _, err := e.Leading(); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	e.mu.Lock()
	lease := e.lease.DeepCopy()
	e.mu.Unlock()
	for try := 1; ; try++ {
		lease.Spec.HolderIdentity = new("")
		lease.Spec.RenewTime = new(metav1.NewMicroTime(e.now.Now()))
		_, err := e.leases.Update(ctx, lease, metav1.UpdateOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) || try == releaseTries {
			return fmt.Errorf("give up the Lease: %w", err)
		}
		// A renewal of this replica's own was under way.
		if lease, err = e.leases.Get(ctx, e.name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("give up the Lease: %w", err)
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") != e.identity {
			return nil
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.renewed = time.Time{}
	return nil
}

func (e *Elector) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	e.mu.Lock()
	holds := e.seen.Holder == e.identity
	e.mu.Unlock()
	if !holds {
		if err := e.read(ctx); err != nil {
			return err
		}
	}
	follows, has := e.state()
	e.mu.Lock()
	me := Self{Identity: e.identity, Renewed: e.renewed, Follows: follows, HasState: has}
	action, lease := Decide(e.now.Now(), e.seen, me), e.lease
	e.mu.Unlock()
	switch action {
	case Deposed:
		return ErrDeposed
	case Take, Renew:
		return e.write(ctx, lease, action == Take)
	case Wait:
	}
	return nil
}

// read looks at the Lease.
func (e *Elector) read(ctx context.Context) error {
	lease, err := e.leases.Get(ctx, e.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("read the Lease: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.see(lease)
	return nil
}

// see notes the Lease; e.mu is held.
func (e *Elector) see(lease *coordinationv1.Lease) {
	if lease != nil && e.lease != nil && lease.ResourceVersion == e.lease.ResourceVersion {
		return
	}
	s := Seen{Since: e.now.Now(), For: leaseFor}
	if lease != nil {
		if h := lease.Spec.HolderIdentity; h != nil {
			s.Holder = *h
		}
		if n := lease.Spec.LeaseTransitions; n != nil {
			s.Epoch = uint64(max(*n, 0)) //nolint:gosec // not negative
		}
		if d := lease.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
			s.For = time.Duration(*d) * time.Second
		}
	}
	if s.Holder == e.seen.Holder && s.Holder == "" && !e.seen.Since.IsZero() {
		s.Since = e.seen.Since // nobody has it, as before
	}
	e.lease, e.seen = lease, s
}

// write takes or renews the Lease. The server lets it through only where nobody
// has written it since it was read.
func (e *Elector) write(ctx context.Context, old *coordinationv1.Lease, take bool) error {
	sent := e.now.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.name}}
	if old != nil {
		lease = old.DeepCopy()
	}
	lease.Spec.HolderIdentity = &e.identity
	lease.Spec.LeaseDurationSeconds = new(int32(leaseFor / time.Second))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(sent))
	if take {
		transitions := int32(1)
		if n := lease.Spec.LeaseTransitions; n != nil {
			transitions = *n + 1
		}
		lease.Spec.LeaseTransitions = &transitions
		lease.Spec.AcquireTime = lease.Spec.RenewTime
	}
	var err error
	if old == nil {
		lease, err = e.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return e.read(ctx) // somebody was faster, perhaps an earlier attempt of our own
	}
	if err != nil {
		return fmt.Errorf("write the Lease: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.see(lease)
	first := e.renewed.IsZero()
	e.renewed, e.epoch = sent, e.seen.Epoch
	if first {
		close(e.elected)
	}
	return nil
}
