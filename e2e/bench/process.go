package bench

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is what the kernel counts CPU time in: USER_HZ is 100 on every
// architecture that Linux shows to user space.
const clockTick = 10 * time.Millisecond

var errProcFormat = errors.New("unexpected form of a file in /proc")

// Memory is the resident memory of a process in bytes, as the kernel counts it.
type Memory struct {
	RSS  int64 `json:"rss"`
	Anon int64 `json:"anon"`
	File int64 `json:"file"`
	Peak int64 `json:"peak"`
}

// parseCPU reads utime+stime from the text of /proc/PID/stat. The second field,
// the program's name, may itself hold spaces and parentheses.
func parseCPU(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, fmt.Errorf("stat %q: %w", stat, errProcFormat)
	}
	fields := strings.Fields(stat[end+1:])
	const utime, stime = 14 - 3, 15 - 3 // counted from the third field on
	if len(fields) <= stime {
		return 0, fmt.Errorf("stat %q: %w", stat, errProcFormat)
	}
	var ticks int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat %q: %w", stat, errProcFormat)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// parseMemory reads the text of /proc/PID/status.
func parseMemory(status string) (Memory, error) {
	var m Memory
	found := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		var to *int64
		switch name {
		case "VmRSS":
			to = &m.RSS
		case "RssAnon":
			to = &m.Anon
		case "RssFile":
			to = &m.File
		case "VmHWM":
			to = &m.Peak
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return m, fmt.Errorf("status line %q: %w", line, errProcFormat)
		}
		*to = kib << 10
		found++
	}
	if found != 4 {
		return m, fmt.Errorf("status with %d of 4 lines: %w", found, errProcFormat)
	}
	return m, nil
}

// process is a server that is measured. Its pid changes when it is restarted.
type process struct {
	name string
	pid  func() int
}

func (p process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		return 0, fmt.Errorf("CPU of %s: %w", p.name, err)
	}
	return parseCPU(string(data))
}

func (p process) memory() (Memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		return Memory{}, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return parseMemory(string(data))
}

// resetPeak makes the kernel count the peak from now on.
func (p process) resetPeak() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid()), []byte("5"), 0o600); err != nil {
		return fmt.Errorf("peak of %s: %w", p.name, err)
	}
	return nil
}

// cpuOf reads several processes at once, in order.
func cpuOf(processes []process) ([]time.Duration, error) {
	out := make([]time.Duration, len(processes))
	for i, p := range processes {
		var err error
		if out[i], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// spent is what each process used since before.
func spent(processes []process, before []time.Duration) ([]time.Duration, error) {
	now, err := cpuOf(processes)
	if err != nil {
		return nil, err
	}
	for i := range now {
		now[i] -= before[i]
	}
	return now, nil
}
