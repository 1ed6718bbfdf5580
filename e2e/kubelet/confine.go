package kubelet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Confine makes FOLDER the /tmp of this process, which must own its mounts, and
// becomes the command: arguments are FOLDER PATH ARGV0 ARGV.... It only returns
// with an error. So what one container writes to /tmp no other one reads.
func Confine(args []string) error {
	if len(args) < 3 {
		return errors.New("confine: want FOLDER PATH ARGV0 ...")
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("confine: own the mounts: %w", err)
	}
	if err := syscall.Mount(args[0], "/tmp", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("confine: mount %s: %w", args[0], err)
	}
	if err := os.Chdir("/tmp"); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return fmt.Errorf("confine: %w", syscall.Exec(args[1], args[2:], os.Environ()))
}

// CanConfine tries whether processes may have mounts of their own here.
func CanConfine(confine []string, folder string) bool {
	truth, err := exec.LookPath("true")
	if err != nil || len(confine) == 0 {
		return false
	}
	args := append(append([]string{}, confine[1:]...), folder, truth, "true")
	cmd := exec.Command(confine[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd.Run() == nil
}
