// Package journey does what users do, against one plain cluster and against the
// endpoint over two members, with unmodified kubectl and client-go:
//
//	TestMain -> plain, m1, m2 (package lab) -> the endpoint, m1 and m2 joined
//	tests    -> kubectl and client-go -> plain | endpoint -> m1, m2
//
// With JOURNEY_DIR the clusters live in that folder and outlive the run, so that
// the next run finds them; JOURNEY_BINARY replaces the endpoint's program.
package journey

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// startLimit covers a cold build of the binaries.
const startLimit = 15 * time.Minute

// world is what all tests share.
var world struct {
	plain, m1, m2 *lab.Member
	system        *lab.System
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
	dir, keep := os.Getenv("JOURNEY_DIR"), true
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "journey-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		keep = false
		defer func() { _ = os.RemoveAll(dir) }()
	}
	if !keep {
		defer stopWorld()
	}
	if err := startWorld(dir, keep); err != nil {
		fmt.Fprintln(os.Stderr, "start the clusters:", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		showLog(world.system.LogPath("multicluster-apiserver"))
	}
	return code
}

func logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func startWorld(dir string, keep bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var wg sync.WaitGroup
	var errs [3]error
	for i, name := range []string{"plain", "m1", "m2"} {
		target := []**lab.Member{&world.plain, &world.m1, &world.m2}[i]
		wg.Go(func() {
			*target, errs[i] = lab.Start(ctx, lab.Options{
				Name: name, Dir: filepath.Join(dir, name), Metrics: name != "m2", Daemon: keep, Logf: logf,
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	system, err := lab.StartSystem(ctx, lab.SystemOptions{
		Dir: filepath.Join(dir, "endpoint"), Binary: os.Getenv("JOURNEY_BINARY"), Daemon: keep, Logf: logf,
	})
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

func stopWorld() {
	var errs []error
	if world.system != nil {
		errs = append(errs, world.system.Stop())
	}
	for _, member := range []*lab.Member{world.plain, world.m1, world.m2} {
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

// clientOf fails the test when the kubeconfig of a cluster is unusable.
func clientOf(t testing.TB, cluster interface {
	Client() (kubernetes.Interface, error)
},
) kubernetes.Interface {
	t.Helper()
	client, err := cluster.Client()
	if err != nil {
		t.Fatal(err)
	}
	return client
}
