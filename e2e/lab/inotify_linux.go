package lab

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// inotifyPerMember is what one member's processes take of the machine's inotify
// instances; each log that is followed takes one more.
const inotifyPerMember = 12

var inotifyWarned atomic.Bool // once a process is enough

// warnInotify says when the machine is about to run out of inotify instances:
// beyond the limit certificates are not reloaded and files cannot be followed,
// which looks like a fault of whatever is being tested.
func warnInotify(logf Logf) {
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return // no such limit here
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return
	}
	used := 0
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return
	}
	for _, fd := range descriptors {
		// Those of other users cannot be read and do not count against ours.
		if target, err := os.Readlink(fd); err == nil && target == "anon_inode:inotify" {
			used++
		}
	}
	if used+inotifyPerMember > limit && !inotifyWarned.Swap(true) {
		logf("%d of %d inotify instances are in use on this machine; beyond that certificates are not reloaded and watches of files fail. "+
			"Stop other members or raise it: sysctl -w fs.inotify.max_user_instances=1024", used, limit)
	}
}
