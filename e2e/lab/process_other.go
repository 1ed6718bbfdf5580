//go:build unix && !linux

package lab

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Only Linux ends children with their parent; elsewhere Stop must be called.
func childAttributes(daemon bool) *syscall.SysProcAttr {
	if daemon {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

func warnInotify(Logf) {}

func startTime(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return "", fmt.Errorf("pid %d: %w", pid, err)
	}
	state, started, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") {
		return "", fmt.Errorf("pid %d: %w", pid, ErrNotRunning)
	}
	return strings.TrimSpace(started), nil
}
