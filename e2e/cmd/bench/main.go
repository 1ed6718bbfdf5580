// Command bench measures the product beside a real kube-apiserver with the same
// Pods and prints one table; see docs/performance.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var o bench.Options
	flags.IntVar(&o.Pods, "pods", 10_000, "Pods in all: as many in the plain cluster, a half in each of two members")
	flags.IntVar(&o.Rounds, "rounds", 3, "samples of each LIST, of which the median counts")
	flags.BoolVar(&o.Full, "full", false, "also 1,000 events/s, 1,000 watchers, 10 minutes of churn")
	flags.BoolVar(&o.InProcess, "in-process", false, "the member cache inside multicluster-apiserver instead of a gateway process")
	flags.StringVar(&o.Profiles, "profiles", "", "folder for CPU and heap profiles of the gateway")
	flags.StringVar(&o.Dir, "dir", "", "folder for the clusters of this run (default: a temporary one)")
	flags.DurationVar(&o.Settle, "settle", 15*time.Second, "how long servers are left alone before their memory counts")
	markdown := flags.Bool("markdown", false, "print Markdown")
	out := flags.String("out", "", "file for the results as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Pods < 100 || o.Rounds < 1 {
		return errors.New("--pods must be 100 or more, and --rounds 1 or more")
	}
	temporary := o.Dir == ""
	if temporary {
		dir, err := os.MkdirTemp("", "isthmus-bench-")
		if err != nil {
			return err
		}
		o.Dir = dir
	}
	start := time.Now()
	o.Logf = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	result, err := bench.Run(ctx, o)
	if result != nil {
		err = errors.Join(err, report(result, *markdown, *out))
	}
	if err != nil {
		return fmt.Errorf("%w (logs are in %s)", err, o.Dir)
	}
	if temporary {
		return os.RemoveAll(o.Dir)
	}
	return nil
}

// report prints what was measured, and keeps it as JSON where that is asked for.
func report(result *bench.Result, markdown bool, file string) error {
	if file != "" {
		data, err := json.MarshalIndent(result, "", "  ")
		if err != nil {
			return fmt.Errorf("results: %w", err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("results: %w", err)
		}
	}
	return result.Write(os.Stdout, markdown)
}
