// Package spine tries what keeps a fleet from harm: the fence after a restore
// and between leaders, the breaker before mass removals, holds, orphans.
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, both joined
//	tests    -> kubectl, subcommands, an old etcd, SIGSTOP -> members' audit logs
//
// Every test leaves the endpoint serving and both members joined.
// ISTHMUS_E2E_PATIENCE=4 multiplies the limits, ISTHMUS_E2E_WORKLOADS=200 makes
// the drills as large as in the issue. With SPINE_DIR the clusters live in that
// folder and outlive the run.
package spine

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const endpoint = "multicluster-apiserver"

var world labtest.World

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name:    "spine",
		Members: []lab.Options{{Name: "m1", PodsPerNode: 2000}, {Name: "m2", PodsPerNode: 2000}},
		Join:    []string{"m1", "m2"},
	}))
}

func number(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return def
}

// within is a limit on this machine.
func within(d time.Duration) time.Duration {
	return d * time.Duration(number("ISTHMUS_E2E_PATIENCE", 1))
}

func members() []*lab.Member { return world.Members }
