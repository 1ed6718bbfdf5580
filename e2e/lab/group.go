package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// group is the set of processes that make up a member or the endpoint.
type group struct {
	label  string // what messages call it
	dir    string
	daemon bool
	logf   Logf

	components map[string]*component
	order      []string // in which they start
}

func (g *group) reset() { g.components, g.order = map[string]*component{}, nil }

func (g *group) add(name, binary string, flags []string) {
	g.components[name] = &component{name: name, binary: binary, args: flags, dir: g.dir, daemon: g.daemon}
	g.order = append(g.order, name)
}

// readyLimit bounds each phase of a start; a busy machine is slow.
const readyLimit = 3 * time.Minute

// poll repeats check until it returns nil, and fails early with the log of a
// component that died. blame is the component whose log explains a timeout.
func (g *group) poll(ctx context.Context, what, blame string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	start, said := time.Now(), time.Now()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := check(attempt)
		done()
		if err == nil {
			return nil
		}
		if dead := g.deadComponent(); dead != nil {
			return dead.failure()
		}
		if time.Since(said) > 10*time.Second {
			g.logf("%s: waiting for %s: %s (%v)", g.label, what, time.Since(start).Round(time.Second), err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s not ready after %s: %w; the end of %s:\n%s", what,
				time.Since(start).Round(time.Second), err, g.components[blame].logPath(), g.components[blame].tail(15))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// deadComponent returns a component that was started and is gone.
func (g *group) deadComponent() *component {
	for _, name := range g.order {
		c := g.components[name]
		if _, err := os.Stat(c.pidPath()); err == nil && !c.alive() {
			return c
		}
	}
	return nil
}

// StopDir ends every process that was recorded for the member in that folder,
// by whichever process started it. It never signals a stranger.
func StopDir(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "pids", "*.json"))
	if err != nil {
		return fmt.Errorf("stop %s: %w", dir, err)
	}
	stop := func(match func(name string) bool, grace time.Duration) error {
		var wait sync.WaitGroup
		errs := make([]error, len(paths))
		for i, path := range paths {
			if match(strings.TrimSuffix(filepath.Base(path), ".json")) {
				wait.Go(func() { errs[i] = stopRecorded(path, grace) })
			}
		}
		wait.Wait()
		return errors.Join(errs...)
	}
	// Clients first, then the API, the store last: so none waits for another.
	isServer := func(name string) bool { return name == "kube-apiserver" || name == "etcd" }
	return errors.Join(
		stop(func(name string) bool { return !isServer(name) }, 3*time.Second),
		stop(func(name string) bool { return name == "kube-apiserver" }, 3*time.Second),
		stop(func(name string) bool { return name == "etcd" }, stopGrace),
	)
}

func stopRecorded(path string, grace time.Duration) error {
	if rec, ok := liveRecord(path); ok {
		if err := stopPID(rec, grace); err != nil {
			return fmt.Errorf("stop %s (pid %d): %w", filepath.Base(rec.Binary), rec.PID, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Running names the live processes that were recorded in a member's folder,
// each with its pid.
func Running(dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, "pids", "*.json"))
	if err != nil {
		return nil // only a malformed pattern fails
	}
	var names []string
	for _, path := range paths {
		if rec, ok := liveRecord(path); ok {
			names = append(names, fmt.Sprintf("%s (%d)", strings.TrimSuffix(filepath.Base(path), ".json"), rec.PID))
		}
	}
	return names
}
