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
