package membercache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

func cacheIn(t *testing.T, dir string, numbers sequence.Reservation) *Cache {
	t.Helper()
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, numbers, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.known.release)
	return c
}

// kept fills a cache with 100 Pods of m1 and keeps them.
func kept(t *testing.T, dir string, numbers sequence.Reservation) {
	t.Helper()
	c := cacheIn(t, dir, numbers)
	c.known.join(c, Source{Name: "m1", UID: "one"})
	col := c.byResource[Pods.GroupVersionResource]
	s := col.Join("m1", 1, false)
	s.Begin()
	for i := range 100 {
		raw, err := cachetest.RealisticPod(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Put(raw); err != nil {
			t.Fatal(err)
		}
	}
	s.End("1000000")
	if err := col.Save(col.dir); err != nil {
		t.Fatal(err)
	}
	c.known.release()
}

func TestDamagedStateIsSetAside(t *testing.T) {
	for name, damage := range map[string]func(path string, b []byte) error{
		"a byte is another": func(p string, b []byte) error { b[len(b)/2] ^= 1; return os.WriteFile(p, b, 0o600) },
		"cut off":           func(p string, b []byte) error { return os.WriteFile(p, b[:len(b)-5], 0o600) },
		"empty":             func(p string, _ []byte) error { return os.WriteFile(p, nil, 0o600) },
		"of something else": func(p string, _ []byte) error { return os.WriteFile(p, []byte("sqlite"), 0o600) },
		"a folder": func(p string, _ []byte) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Mkdir(p, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, numbers := t.TempDir(), &sequence.Memory{}
			kept(t, dir, numbers)
			path := filepath.Join(dir, "pods.v1.", "base-1")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, b); err != nil {
				t.Fatal(err)
			}
			c := cacheIn(t, dir, numbers)
			col := c.byResource[Pods.GroupVersionResource]
			if n := col.Stats().Objects["m1"]; n != 0 || len(c.Restored()) != 0 {
				t.Errorf("%d objects of %v are served", n, c.Restored())
			}
			aside, err := filepath.Glob(filepath.Join(dir, "pods.v1..damaged-*"))
			if err != nil || len(aside) != 1 {
				t.Errorf("set aside is %v: %v", aside, err)
			}
			// The member is known to have been there: a LIST must wait.
			col.Join("m1", 1, true)
			if gaps := col.Gaps(); len(gaps) != 1 || gaps[0].Kind != cache.NotLoaded {
				t.Errorf("gaps %v", gaps)
			}
		})
	}
}

// What a torn log has lost stays expired over every later restart, and not just
// over the next one.
func TestLostMomentsStayLost(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, numbers)
	col := c.byResource[Pods.GroupVersionResource]
	s := col.Join("m1", 1, true)
	raw, err := cachetest.RealisticPod(1000).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(raw); err != nil {
		t.Fatal(err)
	}
	s.Flush()
	lost := col.Store().Head()
	c.known.release()
	logs, err := filepath.Glob(filepath.Join(dir, "pods.v1.", "log-*"))
	if err != nil || len(logs) != 2 {
		t.Fatalf("logs %v: %v", logs, err)
	}
	if err := os.Truncate(logs[1], 100); err != nil {
		t.Fatal(err)
	}
	for _, save := range []bool{false, true, false} {
		c := cacheIn(t, dir, numbers)
		store := c.byResource[Pods.GroupVersionResource].Store()
		if _, err := store.Snapshot(t.Context(), cache.Version{Match: cache.Exact, RV: lost}); !errors.Is(err, cache.ErrExpired) {
			t.Errorf("read at %d: %v", lost, err)
		}
		if _, err := store.Watch(t.Context(), lost); !errors.Is(err, cache.ErrExpired) {
			t.Errorf("watch from %d: %v", lost, err)
		}
		if save {
			col := c.byResource[Pods.GroupVersionResource]
			if err := col.Save(col.dir); err != nil {
				t.Fatal(err)
			}
		}
		c.known.release()
	}
}

func TestRestoredStateIsServed(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, numbers)
	col := c.byResource[Pods.GroupVersionResource]
	if n := col.Stats().Objects["m1"]; n != 100 {
		t.Fatalf("%d Pods are restored", n)
	}
	content, err := cachetest.Read(Pods, col.Store().Present())
	if err != nil || len(content) != 100 {
		t.Fatalf("%d Pods are read: %v", len(content), err)
	}
	gaps := col.Gaps()
	if len(gaps) != 1 || gaps[0].Kind != cache.Stale {
		t.Errorf("gaps %v", gaps)
	}
	c.known.join(c, Source{Name: "m1", UID: "one"})
	s := col.Join("m1", 1, true)
	if p := s.ResumePoint(); p != "1000000" {
		t.Errorf("the feed goes on from %q", p)
	}
	if again := cacheIn(t, dir, numbers); again.cfg.Dir != "" || again.byResource[Pods.GroupVersionResource].Stats().Objects["m1"] != 0 {
		t.Error("two processes keep their cache in one folder")
	}
}

// TestOtherClusterUnderTheName drops what was restored of the one before.
func TestOtherClusterUnderTheName(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, numbers)
	c.known.join(c, Source{Name: "m1", UID: "two"})
	if n := c.byResource[Pods.GroupVersionResource].Stats().Objects["m1"]; n != 0 {
		t.Errorf("%d Pods of another cluster are served", n)
	}
}

// TestLeftWhileDown drops what was restored of a cluster that has left since.
func TestLeftWhileDown(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, numbers)
	pods := c.byResource[Pods.GroupVersionResource]
	c.Complete("m1")
	if n := pods.Stats().Objects["m1"]; n != 100 {
		t.Fatalf("%d Pods of a cluster that exists", n)
	}
	c.Complete("m2")
	if n := pods.Stats().Objects["m1"]; n != 0 {
		t.Errorf("%d Pods of a cluster that has left are served", n)
	}
	if gaps := pods.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps %v", gaps)
	}
}

// TestNumbersOfAnotherReservation: a folder whose numbers are ahead of what was
// reserved belongs to another system.
func TestNumbersOfAnotherReservation(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	if err := numbers.Store(t.Context(), 1<<62); err != nil {
		t.Fatal(err)
	}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, &sequence.Memory{})
	if n := c.byResource[Pods.GroupVersionResource].Stats().Objects["m1"]; n != 0 {
		t.Errorf("%d Pods with numbers of another system are served", n)
	}
}

// TestNothingIsKept: without a folder to write to everything else works.
func TestNothingIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := cacheIn(t, filepath.Join(file, "cache"), &sequence.Memory{})
	col := c.byResource[Pods.GroupVersionResource]
	s := col.Join("m1", 1, false)
	s.Begin()
	s.End("5")
	if _, on, _ := col.JournalState(); on || len(col.Gaps()) != 0 {
		t.Errorf("written is %v, gaps are %v", on, col.Gaps())
	}
}

// TestFullDisk: when the log cannot be written, serving goes on, and what is on
// the disk is a state to go on from.
func TestFullDisk(t *testing.T) {
	dir, numbers := t.TempDir(), &sequence.Memory{}
	kept(t, dir, numbers)
	c := cacheIn(t, dir, numbers)
	col := c.byResource[Pods.GroupVersionResource]
	s := col.Join("m1", 1, true)
	col.FailJournal()
	raw, err := cachetest.RealisticPod(1000).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(raw); err != nil {
		t.Fatal(err)
	}
	s.Flush()
	if _, on, err := col.JournalState(); on || err == nil {
		t.Errorf("the log goes on: %v", err)
	}
	if n := col.Stats().Objects["m1"]; n != 101 {
		t.Errorf("%d Pods are served", n)
	}
	head := col.Store().Head()
	c.known.release()
	c = cacheIn(t, dir, numbers)
	col = c.byResource[Pods.GroupVersionResource]
	if n := col.Stats().Objects["m1"]; n != 100 {
		t.Errorf("%d Pods are restored", n)
	}
	if _, err := col.Store().Watch(t.Context(), head); err == nil {
		t.Error("a watch from what was not written is not told")
	}
}

func TestSaveDue(t *testing.T) {
	for name, tc := range map[string]struct {
		on, synced   bool
		log, objects int64
		since        time.Duration
		want         bool
	}{
		"nothing to keep":         {since: time.Hour},
		"first state":             {synced: true, since: time.Hour, want: true},
		"it has failed just now":  {synced: true, since: time.Second},
		"small log":               {on: true, synced: true, log: minLog, since: time.Hour},
		"large log":               {on: true, synced: true, log: minLog + 1, since: time.Hour, want: true},
		"large log, large state":  {on: true, synced: true, log: minLog + 1, objects: 128 * minLog, since: time.Hour},
		"larger than a new state": {on: true, synced: true, log: 2*minLog + 1, objects: 128 * minLog, since: time.Hour, want: true},
	} {
		if got := saveDue(tc.on, tc.synced, tc.log, tc.objects, tc.since); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
