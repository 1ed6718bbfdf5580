// Package spine tries what keeps a fleet from harm: the fence after a restore
// and between leaders, the breaker before mass removals, holds, orphans.
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, both joined
//	tests    -> kubectl, subcommands, stolen etcd, SIGSTOP -> members' audit logs
//
// Every test leaves the endpoint serving and both members joined.
// ISTHMUS_E2E_PATIENCE=4 multiplies the limits. With SPINE_DIR the clusters
// live in that folder and outlive the run.
package spine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

const (
	// startLimit covers a cold build of the binaries.
	startLimit = 9 * time.Minute
	endpoint   = "multicluster-apiserver"
)

var world struct {
	dir      string
	keep     bool
	patience time.Duration
	m1, m2   *lab.Member
	system   *lab.System
}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts real clusters")
		return
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	world.patience = 1
	if n, err := strconv.Atoi(os.Getenv("ISTHMUS_E2E_PATIENCE")); err == nil && n > 0 {
		world.patience = time.Duration(n)
	}
	world.dir, world.keep = os.Getenv("SPINE_DIR"), true
	if world.dir == "" {
		var err error
		if world.dir, err = os.MkdirTemp("", "spine-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		world.keep = false
		defer func() { _ = os.RemoveAll(world.dir) }()
		defer stopWorld()
	}
	if err := startWorld(); err != nil {
		fmt.Fprintln(os.Stderr, "start the clusters:", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		showLog(world.system.LogPath(endpoint))
	}
	return code
}

// within is a limit on this machine.
func within(d time.Duration) time.Duration { return d * world.patience }

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func startWorld() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, target := range []**lab.Member{&world.m1, &world.m2} {
		wg.Go(func() {
			name := fmt.Sprintf("m%d", i+1)
			*target, errs[i] = lab.Start(ctx, lab.Options{
				Name: name, Dir: filepath.Join(world.dir, name), PodsPerNode: 2000, Daemon: world.keep, Logf: logf,
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	system, err := lab.StartSystem(ctx, lab.SystemOptions{Dir: filepath.Join(world.dir, "endpoint"), Daemon: world.keep, Logf: logf})
	if err != nil {
		return err
	}
	world.system = system
	for _, member := range members() {
		if err := system.Join(ctx, member.Name(), member.Kubeconfig()); err != nil {
			return fmt.Errorf("join %s: %w", member.Name(), err)
		}
	}
	return nil
}

func members() []*lab.Member { return []*lab.Member{world.m1, world.m2} }

func stopWorld() {
	var errs []error
	if world.system != nil {
		errs = append(errs, world.system.Stop())
	}
	for _, member := range members() {
		if member != nil {
			errs = append(errs, member.Stop())
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "stop the clusters:", err)
	}
}

const shownLines = 60

func showLog(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	fmt.Printf("the end of %s:\n%s\n", path, strings.Join(lines, "\n"))
}
