package sequence

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func open(t interface {
	Fatal(...any)
}, c clock.PassiveClock, r Reservation,
) *Clock {
	s, err := Open(context.Background(), c, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNeverTwice: through restarts, clocks set back and bursts, a number is
// above all before it.
func TestNeverTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clk := testclock.NewFakePassiveClock(Epoch.Add(1000 * time.Hour))
		store := &Memory{}
		s := open(t, clk, store)
		var last uint64
		t.Repeat(map[string]func(*rapid.T){
			"next": func(t *rapid.T) {
				for range rapid.IntRange(1, 50).Draw(t, "numbers") {
					n := s.Next()
					if n <= last || n >= 1<<63 {
						t.Fatalf("%d after %d", n, last)
					}
					last = n
				}
			},
			"restart": func(*rapid.T) { s = open(t, clk, store) },
			"time": func(t *rapid.T) {
				hours := rapid.IntRange(-2000, 2000).Draw(t, "hours")
				clk.SetTime(clk.Now().Add(time.Duration(hours) * time.Minute))
			},
		})
	})
}

func TestFollowsTheClock(t *testing.T) {
	clk := testclock.NewFakePassiveClock(Epoch.Add(time.Hour))
	s := open(t, clk, &Memory{})
	clk.SetTime(Epoch.Add(2 * time.Hour))
	if got, want := s.Next(), uint64(2*time.Hour/time.Millisecond)<<20|1; got != want {
		t.Errorf("%d, not %d", got, want)
	}
}

// failing refuses a number of times.
type failing struct {
	Memory
	mu   sync.Mutex
	left int
}

var errDisk = errors.New("disk is full")

func (f *failing) Store(ctx context.Context, n uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 {
		f.left--
		return errDisk
	}
	return f.Memory.Store(ctx, n)
}

func TestOpenNeedsTheReservation(t *testing.T) {
	if _, err := Open(context.Background(), clock.RealClock{}, &failing{left: 1}, nil); !errors.Is(err, ErrNotReserved) || !errors.Is(err, errDisk) {
		t.Errorf("%v", err)
	}
}

// TestWaitsForTheReservation: no number is given out that is not reserved.
func TestWaitsForTheReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // a bubble begins in 2000
		store := &failing{}
		failures := 0
		var mu sync.Mutex
		s, err := Open(t.Context(), clock.RealClock{}, store, func(error) { mu.Lock(); failures++; mu.Unlock() })
		if err != nil {
			t.Fatal(err)
		}
		store.left = 3
		time.Sleep(time.Minute) // beyond what is reserved
		n := s.Next()
		if upTo, _ := store.Load(t.Context()); n > upTo || failures != 3 {
			t.Errorf("%d is given, %d is reserved, %d failures", n, upTo, failures)
		}
	})
}

func TestExtendsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour)
		store := &Memory{}
		s := open(t, clock.RealClock{}, store)
		first, _ := store.Load(t.Context())
		time.Sleep(6 * time.Second)
		s.Next()
		synctest.Wait()
		if second, _ := store.Load(t.Context()); second <= first {
			t.Errorf("%d is still reserved after more than half of it", second)
		}
	})
}

func TestFile(t *testing.T) {
	f := File(filepath.Join(t.TempDir(), "rv"))
	ctx := context.Background()
	if n, err := f.Load(ctx); n != 0 || err != nil {
		t.Errorf("none: %d, %v", n, err)
	}
	for _, n := range []uint64{5, 1 << 62} {
		if err := f.Store(ctx, n); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(ctx); got != n || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	}
	if _, err := File(filepath.Join(t.TempDir(), "no", "rv")).Load(ctx); err != nil {
		t.Errorf("no folder is as no file: %v", err)
	}
	if err := File(filepath.Join(t.TempDir(), "no", "rv")).Store(ctx, 1); err == nil {
		t.Error("stored where no folder is")
	}
}
