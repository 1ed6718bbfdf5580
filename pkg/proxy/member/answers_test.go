package member

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// TestAnswers: a member that stands still is noticed before anything is sent to
// it, and passed over for a while; any answer is a sign of life.
func TestAnswers(t *testing.T) {
	var frozen atomic.Bool
	var probes atomic.Int32
	thaw := make(chan struct{})
	defer close(thaw)
	_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			probes.Add(1)
		}
		if frozen.Load() {
			<-thaw
			return
		}
		io.WriteString(w, `{}`)
	})
	var pool Pool
	defer pool.Retain(func(cache.ClusterName) bool { return false })
	tr, err := pool.For("m1", config)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Answers(t.Context()); err != nil || probes.Load() != 1 || pool.Silent("m1") {
		t.Fatalf("alive: %v after %d probes", err, probes.Load())
	}
	if err := tr.Answers(t.Context()); err != nil || probes.Load() != 1 {
		t.Errorf("an answer of this second is no sign of life: %v, %d probes", err, probes.Load())
	}
	frozen.Store(true)
	tr.answered.Store(time.Now().Add(-2 * freshAnswer).UnixNano())
	start := time.Now()
	err = tr.Answers(t.Context())
	var gone *UnreachableError
	if !errors.As(err, &gone) || gone.Sent || time.Since(start) > 2*quickProbe {
		t.Errorf("frozen: %v after %s", err, time.Since(start))
	}
	if !pool.Silent("m1") || pool.Silent("m2") {
		t.Errorf("silent: m1 %t, m2 %t", pool.Silent("m1"), pool.Silent("m2"))
	}
	frozen.Store(false)
	if _, err := tr.Do(t.Context(), get("/api")); err != nil {
		t.Fatal(err)
	}
	if pool.Silent("m1") {
		t.Error("still silent after an answer")
	}
}

// A frozen member is given up within some seconds, at once when that is known,
// and its clients are not told to try again.
func TestSilentMemberIsPassedOver(t *testing.T) {
	thaw := make(chan struct{})
	var asked atomic.Int32
	_, config := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			asked.Add(1)
		}
		select {
		case <-thaw:
		case <-r.Context().Done():
		}
	})
	tr := newTransport(t, config)
	try := func(what string, sent bool, requests int32) {
		t.Helper()
		_, err := tr.Do(t.Context(), get("/api"))
		var gone *UnreachableError
		if !errors.As(err, &gone) || gone.Sent != sent || !gone.Lasting || asked.Load() != requests {
			t.Errorf("%s: %+v after %d requests", what, err, asked.Load())
		}
	}
	try("the first request", true, 1)
	try("the next one", false, 1)
	s := serveStream(t, tr, Forward{Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
		var gone *UnreachableError
		if !errors.As(err, &gone) || gone.Sent || !gone.Lasting {
			t.Errorf("an upgrade fails with %v", err)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}})
	tr.answered.Store(0)
	tr.silentAt.Store(0)
	_, in := raw(t, s, upgradeRequest)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !resp.Close || asked.Load() != 1 {
		t.Errorf("an upgrade: %v, %v, %d requests", resp, err, asked.Load())
	}
	close(thaw)
	if _, err := tr.Do(t.Context(), get("/api")); err != nil {
		t.Errorf("after it is back: %v", err)
	}
}

func TestFailuresThatLast(t *testing.T) {
	var f failures
	start := time.Now()
	for _, step := range []struct {
		at      time.Duration
		lasting bool
	}{{0, false}, {time.Second, false}, {4 * time.Second, true}, {20 * time.Second, true}, {2 * time.Minute, false}, {2*time.Minute + briefly + 1, true}} {
		if got := f.lasting(start.Add(step.at)); got != step.lasting {
			t.Errorf("after %s: %v", step.at, got)
		}
	}
	f.end()
	if f.lasting(start.Add(3 * time.Minute)) {
		t.Error("an answer ends no failures")
	}
}
