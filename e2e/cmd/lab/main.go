// Command lab builds the binaries of real member clusters and runs them.
//
//	lab build                                   build or verify the artifacts
//	lab up --members 2 --dir DIR                start member clusters as daemons
//	lab down --dir DIR                          stop them
//	lab status --dir DIR                        which processes run
//	lab demo / lab demo-down                    the product over members in .demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: lab COMMAND [flags]

  build      build the binaries of member clusters (and the product's)
  up         start member clusters that go on running     --members N --dir DIR
  down       stop what up started                         --dir DIR
  status     show the processes of an up or a demo        --dir DIR
  demo       members, the endpoint and a sample           --members N --dir DIR
  demo-down  stop what demo started                       --dir DIR

"lab COMMAND -h" shows the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "lab:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"build": build, "up": up, "down": down, "status": status, "demo": demo, "demo-down": demoDown,
	}
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no command")
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("no command %q", args[0])
	}
	return command(ctx, args[1:])
}

// progress prints lines that carry the elapsed time.
type progress struct {
	start time.Time
	mu    sync.Mutex
}

func newProgress() *progress { return &progress{start: time.Now()} }

func (p *progress) logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.start).Round(100 * time.Millisecond)
	fmt.Printf("[%6.1fs] %s\n", elapsed.Seconds(), fmt.Sprintf(format, args...))
}
