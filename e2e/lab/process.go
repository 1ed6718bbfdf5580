package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrNotRunning is returned for a signal to a component that has no live
// process of ours.
var ErrNotRunning = errors.New("not running")

// component is one child process with its log and its record of who it is.
//
// The record (pids/NAME.json) outlives this process: a pid in it is only
// trusted while the start time that the kernel reports for it is the recorded
// one, so that a number reused by a stranger is never signalled.
type component struct {
	name   string
	binary string
	args   []string
	env    []string
	dir    string // of the member; logs and pids lie below it
	daemon bool   // outlives this process

	mu     sync.Mutex
	exited chan struct{} // closed when a child started here is gone
	logAt  int64         // size of the log when the child started
}

type pidRecord struct {
	PID     int    `json:"pid"`
	Started string `json:"started"`
	Binary  string `json:"binary"`
	Command string `json:"command"` // to see that a new one is wanted
}

func (c *component) logPath() string { return filepath.Join(c.dir, "logs", c.name+".log") }
func (c *component) pidPath() string { return filepath.Join(c.dir, "pids", c.name+".json") }

// start runs the child unless the recorded one is still alive as the
// same command; another build or other arguments are stopped first.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rec, ok := c.live(); ok {
		if rec.Command == c.command() {
			return nil
		}
		if err := c.stopRecord(rec, stopGrace); err != nil {
			return err
		}
	}
	for _, path := range []string{c.logPath(), c.pidPath()} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("start %s: %w", c.name, err)
		}
	}
	log, err := os.OpenFile(c.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	if c.logAt, err = log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	cmd := exec.Command(c.binary, c.args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes(c.daemon)
	if err := startChild(cmd); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	exited := make(chan struct{})
	c.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in its log; that it ended is what counts
	}()
	return c.record(cmd.Process.Pid)
}

// command identifies what is run: the binary, its build and the arguments.
func (c *component) command() string {
	build := ""
	if info, err := os.Stat(c.binary); err == nil {
		build = fmt.Sprintf("%d bytes of %s", info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
	}
	return strings.Join(append([]string{c.binary, build}, c.args...), "\n")
}

func (c *component) record(pid int) error {
	started, err := startTime(pid)
	if err != nil {
		// Gone already: await() will report it with its log.
		started = "exited"
	}
	data, err := json.Marshal(pidRecord{PID: pid, Started: started, Binary: c.binary, Command: c.command()})
	if err != nil {
		return fmt.Errorf("record %s: %w", c.name, err)
	}
	if err := writeFile(c.pidPath(), data, 0o644); err != nil {
		return fmt.Errorf("record %s: %w", c.name, err)
	}
	return nil
}

// live returns the record of the child if that very process still runs.
func (c *component) live() (pidRecord, bool) {
	return liveRecord(c.pidPath())
}

func liveRecord(path string) (pidRecord, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return pidRecord{}, false
	}
	var rec pidRecord
	if json.Unmarshal(data, &rec) != nil || rec.PID <= 1 {
		return pidRecord{}, false
	}
	started, err := startTime(rec.PID)
	if err != nil || started != rec.Started {
		return pidRecord{}, false
	}
	return rec, true
}

func (c *component) alive() bool {
	_, ok := c.live()
	return ok
}

func (c *component) signal(sig syscall.Signal) error {
	rec, ok := c.live()
	if !ok {
		return fmt.Errorf("%s: %w", c.name, ErrNotRunning)
	}
	if err := syscall.Kill(-rec.PID, sig); err != nil {
		return fmt.Errorf("signal %s to %s: %w", sig, c.name, err)
	}
	return nil
}

const stopGrace = 8 * time.Second

// stop ends the child: politely, then by force. Stopping what does not run is
// no error.
func (c *component) stop(grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec, ok := c.live()
	if !ok {
		return c.forget()
	}
	return c.stopRecord(rec, grace)
}

func (c *component) stopRecord(rec pidRecord, grace time.Duration) error {
	if err := stopPID(rec, grace); err != nil {
		return fmt.Errorf("stop %s (pid %d): %w", c.name, rec.PID, err)
	}
	return c.forget()
}

func (c *component) forget() error {
	if err := os.Remove(c.pidPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget %s: %w", c.name, err)
	}
	return nil
}

func stopPID(rec pidRecord, grace time.Duration) error {
	running := func() bool {
		started, err := startTime(rec.PID)
		return err == nil && started == rec.Started
	}
	send := func(sig syscall.Signal) error {
		if err := syscall.Kill(-rec.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		return nil
	}
	if grace > 0 {
		// A stopped process takes no SIGTERM before it continues.
		if err := errors.Join(send(syscall.SIGTERM), send(syscall.SIGCONT)); err != nil {
			return err
		}
		if waitUntil(grace, running) {
			return nil
		}
	}
	if err := send(syscall.SIGKILL); err != nil {
		return err
	}
	if waitUntil(5*time.Second, running) {
		return nil
	}
	return errors.New("still running after SIGKILL")
}

// waitUntil polls until the condition has ended.
func waitUntil(limit time.Duration, running func() bool) bool {
	deadline := time.Now().Add(limit)
	for running() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// failure describes a dead component by the end of its log.
func (c *component) failure() error {
	return fmt.Errorf("%s exited; the end of %s:\n%s", c.name, c.logPath(), c.tail(15))
}

func (c *component) tail(lines int) string {
	data, err := readTail(c.logPath(), 64<<10, c.logAt)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  | " + strings.Join(all, "\n  | ")
}

// readTail reads at most limit bytes of the end of a file, none before from.
func readTail(path string, limit, from int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if from > end {
		from = 0
	}
	if _, err := f.Seek(max(from, end-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// The kernel sends Pdeathsig when the parent's *thread* ends, so children are
// started from one locked thread that lives as long as the process.
var spawner = sync.OnceValue(func() chan<- func() {
	requests := make(chan func())
	go func() {
		runtime.LockOSThread()
		for request := range requests {
			request()
		}
	}()
	return requests
})

func startChild(cmd *exec.Cmd) error {
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}

// writeFile replaces a file in one step.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
