package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever asks a member that did not answer a moment ago is told so at once;
// one that is back is noticed by the same question.
func TestSilenceIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, answer := errors.New("no answer"), make(chan struct{})
		tr := &trust{ask: func(context.Context) error {
			select {
			case <-answer:
				return nil
			case <-time.After(confirmTimeout):
				return silent
			}
		}}
		took := func() (time.Duration, error) {
			start := time.Now()
			err := tr.allow(t.Context())
			return time.Since(start), err
		}
		if d, err := took(); d != confirmTimeout || !errors.Is(err, silent) {
			t.Errorf("the first: %v after %s", err, d)
		}
		for range 3 {
			if d, err := took(); d != backAtOnce || !errors.Is(err, silent) {
				t.Errorf("one who comes next: %v after %s", err, d)
			}
		}
		close(answer)
		time.Sleep(time.Second)
		if d, err := took(); d != 0 || err != nil {
			t.Errorf("after it is back: %v after %s", err, d)
		}
		tr.fail(silent) // as a probe does
		if d, err := took(); d != 0 || err != nil {
			t.Errorf("a member that is back by now: %v after %s", err, d)
		}
	})
}

// A probe that was not answered is as good as a question of one's own, for a
// time.
func TestSilenceOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := errors.New("no answer")
		tr := &trust{ask: func(context.Context) error { time.Sleep(confirmTimeout); return errors.New("later") }}
		tr.fail(silent)
		start := time.Now()
		if err := tr.allow(t.Context()); !errors.Is(err, silent) || time.Since(start) != backAtOnce {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		time.Sleep(confirmTimeout + silenceLasts + time.Second)
		start = time.Now()
		if err := tr.allow(t.Context()); errors.Is(err, silent) || time.Since(start) != confirmTimeout {
			t.Errorf("long after: %v after %s", err, time.Since(start))
		}
	})
}

func TestUnknownIsAMatterOfTime(t *testing.T) {
	if err := unknown(observation{verdict: VerdictUnreachable, message: "no answer", late: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := unknown(observation{verdict: VerdictUnreachable, message: "connection refused"}); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
