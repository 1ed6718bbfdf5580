package lab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func childAttributes(daemon bool) *syscall.SysProcAttr {
	if daemon {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startTime identifies a process beyond its number: the boot-relative tick at
// which it started (field 22 of /proc/PID/stat). A zombie counts as gone once it
// is the last of its threads: until then the others hold its ports.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The command, field 2, may hold spaces and brackets; the last ')' ends it.
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("pid %d: unreadable stat", pid)
	}
	threads := string(fields[17])
	if state := fields[0][0]; state == 'X' || state == 'Z' && threads == "1" {
		return "", fmt.Errorf("pid %d: %w", pid, ErrNotRunning)
	}
	return string(fields[19]), nil
}
