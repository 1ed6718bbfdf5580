package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fakeLock answers as the API server would.
type fakeLock struct {
	resourcelock.Interface
	err   error
	takes time.Duration
}

func (fakeLock) Identity() string { return "me" }

func (f fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(f.takes)
	return f.err
}

func (f fakeLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return f.Update(ctx, r)
}

func TestMayWrite(t *testing.T) {
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	synctest.Test(t, func(t *testing.T) {
		l := &leadership{}
		if !errors.Is(l.MayWrite(), errLeaseOver) {
			t.Error("a replica that never held the lease may write")
		}
		if err := (timedLock{fakeLock{}, l}).Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		if err := l.MayWrite(); err != nil {
			t.Errorf("the holder: %v", err)
		}
		time.Sleep(leaseDuration - leaseMargin)
		if err := l.MayWrite(); err != nil {
			t.Errorf("at the end of the lease: %v", err)
		}
		time.Sleep(time.Second)
		if !errors.Is(l.MayWrite(), errLeaseOver) {
			t.Error("a holder that stood still may write")
		}
		// The lease runs from when the renewal was sent: others count from when it arrived.
		if err := (timedLock{fakeLock{takes: 5 * time.Second}, l}).Update(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseDuration - leaseMargin - 4*time.Second)
		if !errors.Is(l.MayWrite(), errLeaseOver) {
			t.Error("a slow renewal is counted from its end")
		}
		if err := (timedLock{fakeLock{err: errors.New("conflict")}, l}).Update(t.Context(), mine); err == nil || l.MayWrite() == nil {
			t.Error("a renewal that failed counts")
		}
		if err := (timedLock{fakeLock{}, l}).Update(t.Context(), mine); err != nil || l.MayWrite() != nil {
			t.Error("a renewal does not count")
		}
		if err := (timedLock{fakeLock{}, l}).Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil || l.MayWrite() == nil {
			t.Error("a lease that was given up counts")
		}
		if err := (&leadership{alone: true}).MayWrite(); err != nil {
			t.Errorf("a process that is alone: %v", err)
		}
	})
}
