package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// A foe that changes a value back at once, for an hour: the first few changes are
// corrected at once, the rest ever more slowly, and when it has been quiet for
// long a change is corrected at once again.
func TestCorrectionsSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{recorder: record.NewFakeRecorder(10000), statusQueue: newQueue[marks.Key]("contest")}
		defer e.statusQueue.ShutDown()
		m := &member{name: "m1", engine: e, applied: map[marks.Key]*applied{}}
		tpl := templateOf(t, web)
		corrected, started := 0, time.Now()
		var first time.Duration
		for time.Since(started) < time.Hour {
			if wait := m.drifted(webKey, tpl); wait > 0 {
				if first == 0 {
					first = time.Since(started)
				}
				time.Sleep(wait)
				continue
			}
			corrected++
			time.Sleep(10 * time.Millisecond)
		}
		if corrected < 10 || corrected > 25 {
			t.Errorf("%d corrections in an hour", corrected)
		}
		if first > time.Second {
			t.Errorf("slowed down only after %s", first)
		}
		time.Sleep(time.Hour)
		for range 3 {
			if wait := m.drifted(webKey, tpl); wait > 0 {
				t.Errorf("after an hour of peace: wait %s", wait)
			}
		}
	})
}

func TestContest(t *testing.T) {
	at := func(s int) *metav1.Time { v := metav1.NewTime(time.Unix(int64(s), 0)); return &v }
	entries := []metav1.ManagedFieldsEntry{
		{Manager: "old", Time: at(1)}, {Manager: "foe", Time: at(5)}, {Manager: "kcm", Subresource: "status", Time: at(9)}, {Manager: "isthmus", Time: at(8)},
	}
	wanted := map[string]any{"data": map[string]any{"a": "1", "b": "1", "c": "secret"}}
	have := map[string]any{"data": map[string]any{"a": "2", "b": "1", "x": "1"}}
	err := contest(wanted, have, entries)
	if !errors.Is(err, errContested) || !strings.HasSuffix(err.Error(), `data.a, data.c (last written by "foe")`) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if err := contest(wanted, wanted, entries); err != errContested { //nolint:errorlint // exactly this one
		t.Error(err)
	}
}
