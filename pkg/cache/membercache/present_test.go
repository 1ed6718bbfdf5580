package membercache

import (
	"errors"
	"testing"
	"time"
)

// A process that may not be the leader any more never answers as if it were, and
// one that follows answers with what it has only when nobody has taken over.
func TestJudgeReads(t *testing.T) {
	err := errors.New("not reached")
	for _, c := range []struct {
		name           string
		following      bool
		err            error
		waited, silent time.Duration
		want           presence
	}{
		{"the leader has its Lease", false, nil, 0, 0, upToDate},
		{"the leader was asked", true, nil, 0, 0, upToDate},
		{"asked again after a long silence", true, nil, 0, time.Hour, upToDate},
		{"the Lease ran out just now", false, err, 0, 7 * time.Second, notYet},
		{"the Lease is not renewed", false, err, lapsedWait, 10 * time.Second, refused},
		{"the Lease ran out long ago", false, err, lapsedWait, time.Hour, refused},
		{"the leader is not reached", true, err, time.Second, 0, notYet},
		{"a takeover is due", true, err, 9 * time.Second, 10 * time.Second, notYet},
		{"nobody has taken over", true, err, 0, takeoverWait, asItIs},
		{"the log comes, but no answer", true, err, takeoverWait, 0, asItIs},
	} {
		if got := judge(c.following, c.err, c.waited, c.silent); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
