package feed

import (
	"testing"
	"time"
)

// However long a member was away, its feed tries again soon enough for clients
// to see it within seconds of its return, and without a storm.
func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		failures    int
		least, most time.Duration
	}{
		{1, 100 * time.Millisecond, 200 * time.Millisecond},
		{3, 400 * time.Millisecond, 800 * time.Millisecond},
		{6, 2500 * time.Millisecond, 5 * time.Second},
		{8, 2500 * time.Millisecond, 5 * time.Second},
		{1000, 2500 * time.Millisecond, 5 * time.Second},
	} {
		for range 100 {
			if d := backoff(tc.failures); d < tc.least || d > tc.most {
				t.Fatalf("after %d failures the next attempt waits %s, want %s to %s", tc.failures, d, tc.least, tc.most)
			}
		}
	}
}
