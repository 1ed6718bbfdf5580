package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab"
)

func build(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	metrics := flags.Bool("metrics", false, "build metrics-server too")
	product := flags.Bool("product", true, "build the product's commands too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := newProgress()
	set, err := artifacts.Ensure(ctx, *metrics, p.logf)
	if err != nil {
		return err
	}
	p.logf("member binaries: %s", set.Dir)
	if !*product {
		return nil
	}
	if err := set.EnsureProduct(ctx, p.logf); err != nil {
		return err
	}
	p.logf("product binaries: %s", set.ProductDir)
	return nil
}

type upFlags struct {
	members, nodes, pods, qps int
	dir                       string
	metrics                   bool
}

func (f *upFlags) register(flags *flag.FlagSet, dir string, metrics bool) {
	flags.IntVar(&f.members, "members", 2, "number of member clusters, named m1, m2 ...")
	flags.IntVar(&f.nodes, "nodes", 3, "kwok nodes of each member")
	flags.IntVar(&f.pods, "pods-per-node", 110, "Pods that a node holds")
	flags.IntVar(&f.qps, "qps", 100, "API requests a second of each member's controllers")
	flags.StringVar(&f.dir, "dir", dir, "folder of the clusters' state")
	flags.BoolVar(&f.metrics, "metrics", metrics, "metrics-server in m1 (for kubectl top and HPAs)")
}

func (f *upFlags) parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if f.dir == "" {
		return errors.New("--dir is missing")
	}
	if f.members < 1 || f.members > 50 {
		return fmt.Errorf("--members %d: from 1 to 50", f.members)
	}
	dir, err := filepath.Abs(f.dir)
	f.dir = dir
	return err
}

func up(ctx context.Context, args []string) error {
	var f upFlags
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	f.register(flags, "", false)
	if err := f.parse(flags, args); err != nil {
		return err
	}
	p := newProgress()
	members, err := startMembers(ctx, f, p)
	if err != nil {
		return fmt.Errorf("%w\n(what did start goes on running; repeat the command, or: lab down --dir %s)", err, f.dir)
	}
	fmt.Println()
	for _, m := range members {
		fmt.Printf("export KUBECONFIG=%s   # %s\n", m.Kubeconfig(), m.Name())
	}
	fmt.Printf("kubectl: %s\n", members[0].Artifacts().Path("kubectl"))
	return nil
}

// startMembers starts them side by side; two at a time keep small machines busy
// and the waits short.
func startMembers(ctx context.Context, f upFlags, p *progress) ([]*lab.Member, error) {
	if _, err := artifacts.Ensure(ctx, f.metrics, p.logf); err != nil {
		return nil, err
	}
	members := make([]*lab.Member, f.members)
	errs := make([]error, f.members)
	slots := make(chan struct{}, 2)
	var wait sync.WaitGroup
	for i := range members {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			name := fmt.Sprintf("m%d", i+1)
			p.logf("starting member %s", name)
			members[i], errs[i] = lab.Start(ctx, lab.Options{
				Name: name, Dir: filepath.Join(f.dir, "members", name),
				Nodes: f.nodes, PodsPerNode: f.pods, QPS: f.qps, Metrics: f.metrics && i == 0,
				Daemon: true, Logf: p.logf,
			})
			if errs[i] == nil {
				p.logf("member %s is ready", name)
			}
		})
	}
	wait.Wait()
	return members, errors.Join(errs...)
}

func down(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder given to up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is missing")
	}
	return stopAll(*dir, newProgress())
}

// stopAll stops the endpoint before the members that it talks to.
func stopAll(dir string, p *progress) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		p.logf("nothing to stop: %s does not exist", dir)
		return nil
	} else if err != nil {
		return err
	}
	if err := lab.StopDir(filepath.Join(dir, "endpoint")); err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(dir, "members", "*"))
	if err != nil {
		return err
	}
	errs := make([]error, len(dirs))
	var wait sync.WaitGroup
	for i, member := range dirs {
		wait.Go(func() { errs[i] = lab.StopDir(member) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.logf("stopped everything that was started in %s", dir)
	return nil
}

func status(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder given to up or demo")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is missing")
	}
	dirs, err := filepath.Glob(filepath.Join(*dir, "members", "*"))
	if err != nil {
		return err
	}
	for _, d := range append([]string{filepath.Join(*dir, "endpoint")}, dirs...) {
		running := lab.Running(d)
		if len(running) == 0 {
			running = []string{"nothing runs"}
		}
		fmt.Printf("%-10s %s\n", filepath.Base(d), strings.Join(running, ", "))
	}
	return nil
}
