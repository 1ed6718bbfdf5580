package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/registry/install"
)

// leaseName is the Lease that the leading replica holds.
const leaseName = "isthmus-leader"

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// leaseMargin is how long before the end of its lease a leader stops writing:
// requests need time to arrive.
const leaseMargin = 3 * time.Second

var errLostLease = errors.New("the leader's lease is lost: another replica goes on, this process starts anew")

// leadership is held by one replica at a time. A process with an embedded etcd
// is alone by construction and leads without a Lease, so that a restart does
// not wait for an old one to run out.
type leadership struct {
	alone bool
	leads atomic.Bool
	// renewed is when the last successful renewal was sent.
	renewed atomic.Pointer[time.Time]
}

var errLeaseOver = errors.New("the leader's lease may have run out")

// MayWrite is asked before every write to a member. It goes by the monotonic
// clock, so that a process that stood still notices before anybody tells it.
func (l *leadership) MayWrite() error {
	if l.alone {
		return nil
	}
	if at := l.renewed.Load(); at == nil || time.Since(*at) > leaseDuration-leaseMargin {
		return errLeaseOver
	}
	return nil
}

// timedLock notes when the lease was renewed.
type timedLock struct {
	resourcelock.Interface
	leadership *leadership
}

// Create implements resourcelock.Interface.
func (t timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.timed(record, func() error { return t.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (t timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.timed(record, func() error { return t.Interface.Update(ctx, record) })
}

func (t timedLock) timed(record resourcelock.LeaderElectionRecord, write func() error) error {
	sent := time.Now()
	if record.HolderIdentity != t.Identity() {
		t.leadership.renewed.Store(nil) // the lease is given up
		return write()
	}
	if err := write(); err != nil {
		return err
	}
	t.leadership.renewed.Store(&sent)
	return nil
}

// Leads says whether this replica may write on behalf of all.
func (l *leadership) Leads() bool { return l.leads.Load() }

// run calls lead while this replica leads; it returns when lead does, or with
// errLostLease.
func (l *leadership) run(parent context.Context, loopback *rest.Config, lead func(ctx context.Context) error) error {
	if l.alone {
		return lead(parent)
	}
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("client of the leader election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this replica: %w", err)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	result := make(chan error, 1)
	lock := timedLock{&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: install.Namespace, Name: leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
	}, l}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				l.leads.Store(true)
				result <- lead(ctx)
				cancel()
			},
			OnStoppedLeading: func() { l.leads.Store(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("set up the leader election: %w", err)
	}
	klog.InfoS("Waiting to lead", "lease", leaseName, "identity", lock.Identity())
	elector.Run(ctx)
	switch {
	case stopping(parent):
		return nil
	case len(result) > 0:
		return <-result
	}
	return errLostLease
}

func stopping(ctx context.Context) bool { return ctx.Err() != nil }
