package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// exitStatus is how a process ended that ran.
type exitStatus struct {
	code int
	how  string
}

func (e *exitStatus) Error() string { return e.how }

// statusOf reads the end of a process: nil for success, an exitStatus with
// 128+N for a death by signal N, as container runtimes report it.
func statusOf(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return &exitStatus{code: code, how: exit.Error()}
}

// command prepares a process with the container's folder as its home. A
// command that does not exist is an error before anything starts.
func (s *Server) command(c *container, argv []string, tty bool) (*exec.Cmd, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%w: no command", ErrBadRequest)
	}
	files := filepath.Join(c.dir, "files")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return nil, fmt.Errorf("container's folder: %w", err)
	}
	home := files
	confined := len(s.opts.Confine) > 0
	if confined {
		home = "/tmp"
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("failed to start: exec: %w", err)
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Dir: files, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if confined {
		cmd.Path = s.opts.Confine[0]
		cmd.Args = append(append(append([]string{}, s.opts.Confine...), files, path), argv...)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CLUSTER=" + s.opts.Cluster,
		"HOSTNAME=" + c.pod.Name, "POD_NAME=" + c.pod.Name, "POD_NAMESPACE=" + c.pod.Namespace, "CONTAINER=" + c.name,
	}
	if tty {
		cmd.Env = append(cmd.Env, "TERM=xterm")
	}
	return cmd, nil
}

// processStreams are the client's ends; those that it did not ask for are nil.
type processStreams struct {
	in       io.Reader
	out, err io.Writer
	both     io.Writer // instead of out and err
}

// runPiped runs a process without a terminal. The end of the input closes the
// process' input, and its output is complete when runPiped returns.
func runPiped(ctx context.Context, cmd *exec.Cmd, streams processStreams) error {
	cmd.SysProcAttr.Setpgid = true
	p := &pipes{exited: make(chan struct{})}
	defer p.close()
	err := p.connect(cmd, streams)
	if err == nil {
		err = cmd.Start()
	}
	closeAll(p.theirs)
	if err != nil {
		p.drain()
		return fmt.Errorf("failed to start: %w", err)
	}
	if p.input != nil {
		go feed(p.input, streams.in)
	}
	err = wait(ctx, cmd)
	p.drain()
	signalGroup(cmd, syscall.SIGKILL) // what it left in the background
	return err
}

// pipes lead between a process and its client.
type pipes struct {
	theirs  []*os.File // the process' ends, closed here once it has started
	outputs []*os.File
	input   *os.File

	copies sync.WaitGroup
	exited chan struct{} // closed when the process has ended
}

// connect makes a pipe for every stream that the client asked for; the others
// stay /dev/null.
func (p *pipes) connect(cmd *exec.Cmd, streams processStreams) error {
	outputs := []struct {
		from *io.Writer
		to   io.Writer
	}{{&cmd.Stdout, streams.out}, {&cmd.Stderr, streams.err}}
	if streams.both != nil {
		outputs[0].to, outputs[1].to = streams.both, nil
	}
	for _, output := range outputs {
		if output.to == nil {
			continue
		}
		r, child, err := os.Pipe()
		if err != nil {
			return err
		}
		p.outputs, p.theirs = append(p.outputs, r), append(p.theirs, child)
		*output.from = child
		p.copies.Go(func() { deliver(output.to, drainedPipe{r, p.exited}) })
	}
	if streams.both != nil {
		cmd.Stderr = cmd.Stdout
	}
	if streams.in == nil {
		return nil
	}
	child, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p.input, p.theirs = w, append(p.theirs, child)
	cmd.Stdin = child
	return nil
}

// drain returns when the client has all that the ended process wrote.
func (p *pipes) drain() {
	close(p.exited)
	for _, f := range p.outputs {
		_ = f.SetReadDeadline(time.Now().Add(lingering)) // wakes a read that waits
	}
	p.copies.Wait()
}

func (p *pipes) close() {
	closeAll(p.outputs)
	if p.input != nil {
		_ = p.input.Close() // fed no more, or closed already
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a pipe whose content has arrived
	}
}

// feed passes the client's input on and closes the process' input at its end.
// What a process no longer reads is read all the same: a stream that nobody
// reads would block its neighbours on the connection.
func feed(input io.WriteCloser, in io.Reader) {
	_, _ = io.Copy(input, in) // the process closed its input, or the client is gone
	_ = input.Close()
	_, _ = io.Copy(io.Discard, in)
}

// deliver copies all output; when the client takes no more, the process must
// not block on it.
func deliver(w io.Writer, r io.Reader) {
	_, _ = io.Copy(w, r)
	_, _ = io.Copy(io.Discard, r)
}

// lingering is how long a pipe may be silent after the process ended: a
// descendant that keeps it open does not keep the client.
const lingering = time.Second

type drainedPipe struct {
	file   *os.File
	exited <-chan struct{}
}

// Read ends when the process has exited and nothing came for a while. Time
// that the client takes to accept output does not count.
func (p drainedPipe) Read(b []byte) (int, error) {
	select {
	case <-p.exited:
		if err := p.file.SetReadDeadline(time.Now().Add(lingering)); err != nil {
			return 0, err
		}
	default:
	}
	n, err := p.file.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// hangUp is how long a process has to end after its client has gone.
const hangUp = time.Second

// signalGroup reaches the process and its descendants; gone is what we want.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }

// wait ends the process' group when the context ends.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return statusOf(err)
	case <-ctx.Done():
	}
	signalGroup(cmd, syscall.SIGHUP)
	select {
	case err := <-ended:
		return statusOf(err)
	case <-time.After(hangUp):
		signalGroup(cmd, syscall.SIGKILL)
		return statusOf(<-ended)
	}
}

// firstSize is how long a terminal waits for the client to tell its size, so
// that the first thing a program asks has the right answer.
const firstSize = 300 * time.Millisecond

// runTerminal runs a process as the leader of a session on a new terminal.
func runTerminal(ctx context.Context, cmd *exec.Cmd, streams processStreams, resize <-chan remotecommand.TerminalSize) error {
	master, slave, err := pty.Open()
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	defer func() { _ = master.Close() }()
	setSize := func(size remotecommand.TerminalSize) {
		// A size that cannot be set leaves the last one.
		_ = pty.Setsize(master, &pty.Winsize{Rows: size.Height, Cols: size.Width})
	}
	select {
	case size, ok := <-resize:
		if ok {
			setSize(size)
		}
	case <-time.After(firstSize):
	case <-ctx.Done():
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	err = cmd.Start()
	_ = slave.Close()
	if err != nil {
		return fmt.Errorf("failed to start: %w", err)
	}
	sizesDone := make(chan struct{})
	go func() {
		defer close(sizesDone)
		for size := range resize {
			setSize(size)
		}
	}()
	if streams.in != nil {
		go typeInto(master, streams.in)
	}
	var copied sync.WaitGroup
	out := streams.out
	if out == nil {
		out = io.Discard
	}
	copied.Go(func() { deliver(out, master) })
	err = wait(ctx, cmd)
	// The kernel hangs the terminal up with its session's leader, which ends
	// the copy after the last output.
	copied.Wait()
	signalGroup(cmd, syscall.SIGKILL) // what ignored the hang-up
	return err
}

// endOfTransmission is how a terminal is told that no more is typed.
const endOfTransmission = 4

func typeInto(master io.Writer, in io.Reader) {
	if _, err := io.Copy(master, in); err == nil {
		_, _ = master.Write([]byte{endOfTransmission}) // the terminal may be gone
	}
	_, _ = io.Copy(io.Discard, in)
}
