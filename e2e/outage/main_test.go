// Package outage breaks what the endpoint stands on, and looks at what its
// clients see meanwhile:
//
//	TestMain -> m1, m2, m3 (package lab) -> the endpoint, m1 and m2 joined
//	tests    -> freeze, kill, cut, restart -> client-go, kubectl -> endpoint
//	         -> compared with the members themselves
//
// Every test leaves m1 and m2 joined and running, m3 running and not joined, and the
// endpoint serving.
//
// ISTHMUS_E2E_PODS=5000 makes the long run: more Pods, faster churn, longer
// outages. ISTHMUS_E2E_PATIENCE=4 multiplies the limits, for a machine that is
// busy with other work. With OUTAGE_DIR the clusters live in that folder and
// outlive the run; OUTAGE_BINARY replaces the endpoint's program.
package outage

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
	startLimit = 15 * time.Minute
	endpoint   = "multicluster-apiserver"
	// podsPerNode leaves room for the long run.
	podsPerNode = 5000
)

// world is what all tests share.
var world struct {
	dir        string
	keep       bool
	m1, m2, m3 *lab.Member
	system     *lab.System
}

// size of the run.
var size = struct {
	pods     int
	churn    int // changes a second
	outage   time.Duration
	patience time.Duration // factor of limits
}{pods: 600, churn: 10, outage: 20 * time.Second, patience: 1}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts real clusters")
		return
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if err := readSize(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	world.dir, world.keep = os.Getenv("OUTAGE_DIR"), true
	if world.dir == "" {
		var err error
		if world.dir, err = os.MkdirTemp("", "outage-"); err != nil {
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

func readSize() error {
	for name, set := range map[string]func(int){
		"ISTHMUS_E2E_PODS": func(n int) {
			size.pods = n
			if n >= 5000 {
				size.churn, size.outage = 50, time.Minute
			}
		},
		"ISTHMUS_E2E_PATIENCE": func(n int) { size.patience = time.Duration(n) },
	} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%s=%q is not a number above 0", name, text)
		}
		set(n)
	}
	return nil
}

// within is a limit on this machine.
func within(d time.Duration) time.Duration { return d * size.patience }

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func startWorld() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var wg sync.WaitGroup
	var errs [3]error
	for i, name := range []string{"m1", "m2", "m3"} {
		target := []**lab.Member{&world.m1, &world.m2, &world.m3}[i]
		wg.Go(func() { *target, errs[i] = startMember(ctx, name) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	system, err := lab.StartSystem(ctx, systemOptions(logf))
	if err != nil {
		return err
	}
	world.system = system
	for _, member := range []*lab.Member{world.m1, world.m2} {
		if err := system.Join(ctx, member.Name(), member.Kubeconfig()); err != nil {
			return fmt.Errorf("join %s: %w", member.Name(), err)
		}
	}
	return nil
}

func startMember(ctx context.Context, name string) (*lab.Member, error) {
	return lab.Start(ctx, lab.Options{
		Name: name, Dir: filepath.Join(world.dir, name), PodsPerNode: podsPerNode, Daemon: world.keep, Logf: logf,
	})
}

// systemOptions are those of the one endpoint; a test that runs it otherwise
// puts them back.
func systemOptions(logf lab.Logf) lab.SystemOptions {
	return lab.SystemOptions{
		Dir: filepath.Join(world.dir, "endpoint"), Binary: os.Getenv("OUTAGE_BINARY"), Daemon: world.keep, Logf: logf,
	}
}

func stopWorld() {
	var errs []error
	if world.system != nil {
		errs = append(errs, world.system.Stop())
	}
	for _, member := range []*lab.Member{world.m1, world.m2, world.m3} {
		if member != nil {
			errs = append(errs, member.Stop())
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "stop the clusters:", err)
	}
}

const shownLines = 40

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
