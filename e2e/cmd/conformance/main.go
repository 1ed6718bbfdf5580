// Command conformance runs Kubernetes' own end-to-end suite through the
// endpoint over three real members, or against one plain cluster:
//
//	conformance [--focus REGEXP] [--plain] [--sample] [--limit 8m]
//
// It ends with the count and with status 1 unless every spec passed. With the
// same --dir a later run goes on where the last one stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/conformance"
)

type options struct {
	dir, focus, skip     string
	plain, sample, again bool
	limit                time.Duration
	procs                int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "", "folder of results, logs and clusters (default: a new temporary one)")
	flags.StringVar(&o.focus, "focus", "", "run only specs whose name this regular expression matches")
	flags.StringVar(&o.skip, "skip", "", "leave out specs whose name this regular expression matches")
	flags.BoolVar(&o.plain, "plain", false, "run against one plain cluster, to see whether a failure is the endpoint's")
	flags.BoolVar(&o.sample, "sample", false, "run the fixed sample instead of all specs")
	flags.BoolVar(&o.again, "again", false, "forget earlier failures in --dir and try them anew")
	flags.DurationVar(&o.limit, "limit", 90*time.Minute, "stop in time; what was not run is named")
	flags.IntVar(&o.procs, "procs", 4, "specs that run side by side")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "conformance-")
	} else if o.dir, err = filepath.Abs(o.dir); err == nil {
		err = os.MkdirAll(o.dir, 0o755)
	}
	return o, err
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	start := time.Now()
	logf := func(format string, args ...any) {
		fmt.Printf("[%5.0fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	names := conformance.Specs()
	if o.sample {
		names = conformance.Sample()
	}
	if names, err = conformance.Matching(names, o.focus, o.skip); err != nil {
		return err
	}
	resultsPath := filepath.Join(o.dir, "results.json")
	results, err := conformance.ReadResults(resultsPath)
	if err != nil {
		return err
	}
	if o.again {
		for _, name := range results.Judge(names).Failed {
			delete(results, name)
		}
	}
	verdict, err := measure(ctx, o, names, results, start.Add(o.limit), logf)
	if err != nil {
		return err
	}
	fmt.Printf("%s\nlogs and results: %s\n", verdict, o.dir)
	if !verdict.OK() {
		return errors.New("not every spec passed")
	}
	return nil
}

func measure(ctx context.Context, o options, names []string, results conformance.Results, until time.Time,
	logf func(string, ...any),
) (verdict conformance.Verdict, err error) {
	set, err := artifacts.Ensure(ctx, false, logf)
	if err != nil {
		return verdict, err
	}
	suite, err := set.EnsureSuite(ctx, logf)
	if err != nil {
		return verdict, err
	}
	startClusters := conformance.StartEndpoint
	if o.plain {
		startClusters = conformance.StartPlain
	}
	dir, err := os.MkdirTemp(o.dir, "clusters-")
	if err != nil {
		return verdict, err
	}
	clusters, err := startClusters(ctx, dir, logf)
	defer func() { err = errors.Join(err, clusters.Stop()) }()
	if err != nil {
		return verdict, err
	}
	logf("the clusters are up: export KUBECONFIG=%s", clusters.Kubeconfig())
	r := conformance.Run{
		Suite: suite, Kubectl: clusters.Kubectl(), Kubeconfig: clusters.Kubeconfig(), Dir: o.dir, Procs: o.procs, Logf: logf,
	}
	err = r.All(ctx, names, results, until, func() error { return results.Write(filepath.Join(o.dir, "results.json")) })
	return results.Judge(names), err
}
