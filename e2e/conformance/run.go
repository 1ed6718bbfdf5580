// Package conformance runs Kubernetes' own end-to-end suite against one
// endpoint and judges what came of it:
//
//	specs.txt -> ginkgo and the compiled suite -> endpoint
//	          -> progress lines, JSON report -> Results -> Verdict
//
// Results outlive a run in a file, so that a run can be cut short and resumed.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// Run says what is run against what.
type Run struct {
	Suite      artifacts.Suite
	Kubectl    string
	Kubeconfig string
	// Dir takes logs and reports.
	Dir string
	// Procs run side by side.
	Procs int
	// Logf receives progress lines.
	Logf func(format string, args ...any)
}

// All runs the specs until each has passed or was tried Attempts times, or the
// time is over, and adds what came of it to the results. After each round it
// calls save.
func (r Run) All(ctx context.Context, names []string, results Results, until time.Time, save func() error) error {
	for round := 1; round <= Attempts; round++ {
		pending := results.Pending(names)
		left := time.Until(until)
		if len(pending) == 0 || left < minimum {
			return nil
		}
		r.Logf("round %d: %d specs", round, len(pending))
		if err := r.once(ctx, pending, results, left); err != nil {
			return err
		}
		if err := save(); err != nil {
			return err
		}
	}
	return nil
}

const (
	// minimum is the least time that is worth a round.
	minimum = 20 * time.Second
	// cleanup is how long specs may take to clean up when the time is over.
	cleanup = 20 * time.Second
)

func (r Run) once(ctx context.Context, names []string, results Results, limit time.Duration) error {
	reportPath := filepath.Join(r.Dir, "report.json")
	if err := os.Remove(reportPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("conformance: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(r.Dir, "suite.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	progress := newProgress(len(names), r.Logf)
	cmd := r.command(ctx, names, limit)
	cmd.Stdout = io.MultiWriter(log, progress)
	cmd.Stderr = cmd.Stdout
	runErr := cmd.Run()
	closeErr := log.Close()
	if ctx.Err() != nil {
		return fmt.Errorf("conformance: %w", ctx.Err())
	}
	data, err := os.ReadFile(reportPath)
	if err != nil {
		return fmt.Errorf("the suite gave no report, see %s: %w", log.Name(), errors.Join(err, runErr))
	}
	return errors.Join(results.addReport(data), closeErr)
}

func (r Run) command(ctx context.Context, names []string, limit time.Duration) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Suite.Ginkgo, "run", "-v", "--no-color", "--procs="+strconv.Itoa(r.Procs),
		"--timeout="+max(limit-cleanup, minimum/2).String(), "--grace-period="+(cleanup/2).String(),
		"--output-dir="+r.Dir, "--json-report=report.json", "--focus="+focus(names), r.Suite.Program, "--",
		"--kubeconfig="+r.Kubeconfig, "--provider=skeleton", "--kubectl-path="+r.Kubectl, "--repo-root="+r.Suite.Source,
		"--allowed-not-ready-nodes=-1", "--num-nodes=3", "--minStartupPods=0", "--node-schedulable-timeout=30s",
		"--system-daemonsets-startup-timeout=5s", "--dump-logs-on-failure=false")
	cmd.Dir = r.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = cleanup
	return cmd
}
