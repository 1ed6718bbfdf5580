package labtest

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

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// World is what all tests of a package share: members in the order of
// WorldOptions, and the endpoint over those that are joined.
type World struct {
	Dir     string
	Members []*lab.Member
	System  *lab.System

	// Keep says that the clusters outlive the run.
	Keep bool
	opts WorldOptions
}

// WorldOptions say what a World is made of.
type WorldOptions struct {
	// Name begins the name of the temporary folder. With NAME_DIR set in the
	// environment (upper case) the clusters live in that folder and outlive the
	// run; NAME_BINARY replaces the endpoint's program.
	Name    string
	Members []lab.Options // Dir, Daemon and Logf are filled in
	Join    []string      // members to join, in this order
	System  lab.SystemOptions
	// Before runs when the members serve and the endpoint does not yet, After
	// when those of Join are joined.
	Before, After func(*World) error
}

// Main is a package's TestMain: it starts the world, runs the tests and stops
// what it started. It returns the exit status.
func Main(m *testing.M, w *World, opts WorldOptions) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts real clusters")
		return 0
	}
	w.opts = opts
	w.Dir, w.Keep = os.Getenv(strings.ToUpper(opts.Name)+"_DIR"), true
	if w.Dir == "" {
		dir, err := os.MkdirTemp("", opts.Name+"-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		w.Dir, w.Keep = dir, false
		defer func() { _ = os.RemoveAll(dir) }()
		defer w.stop()
	}
	if err := w.start(); err != nil {
		fmt.Fprintln(os.Stderr, "start the clusters:", err)
		return 1
	}
	code := m.Run()
	if code != 0 && w.System != nil {
		printEnd(w.System.LogPath("multicluster-apiserver"))
	}
	return code
}

func printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (w *World) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	w.Members = make([]*lab.Member, len(w.opts.Members))
	errs := make([]error, len(w.Members))
	var wg sync.WaitGroup
	for i, o := range w.opts.Members {
		o.Dir, o.Daemon, o.Logf = filepath.Join(w.Dir, o.Name), w.Keep, printf
		wg.Go(func() { w.Members[i], errs[i] = lab.Start(ctx, o) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if w.opts.Before != nil {
		if err := w.opts.Before(w); err != nil {
			return err
		}
	}
	system, err := lab.StartSystem(ctx, w.SystemOptions(printf))
	if err != nil {
		return err
	}
	w.System = system
	for _, name := range w.opts.Join {
		if err := system.Join(ctx, name, w.Member(name).Kubeconfig()); err != nil {
			return fmt.Errorf("join %s: %w", name, err)
		}
	}
	if w.opts.After != nil {
		return w.opts.After(w)
	}
	return nil
}

// SystemOptions are those of the endpoint; a test that runs it otherwise puts
// them back.
func (w *World) SystemOptions(logf lab.Logf) lab.SystemOptions {
	o := w.opts.System
	o.Dir, o.Daemon, o.Logf = filepath.Join(w.Dir, "endpoint"), w.Keep, logf
	if binary := os.Getenv(strings.ToUpper(w.opts.Name) + "_BINARY"); binary != "" {
		o.Binary = binary
	}
	return o
}

// Member by name; nil when there is none.
func (w *World) Member(name string) *lab.Member {
	for i, o := range w.opts.Members {
		if o.Name == name {
			return w.Members[i]
		}
	}
	return nil
}

func (w *World) stop() {
	var errs []error
	if w.System != nil {
		errs = append(errs, w.System.Stop())
	}
	for _, member := range w.Members {
		if member != nil {
			errs = append(errs, member.Stop())
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "stop the clusters:", err)
	}
}

func printEnd(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	fmt.Printf("the end of %s:\n%s\n", path, strings.Join(lines, "\n"))
}
