// Package outage breaks what the endpoint stands on, and looks at what its
// clients see meanwhile:
//
//	TestMain -> m1, m2, m3 (package lab) -> the endpoint, m1 and m2 joined
//	tests    -> freeze, kill, cut, restart -> client-go, kubectl -> endpoint
//	         -> compared with the members themselves
//
// Every test leaves m1 and m2 joined and running, m3 running and not joined, and the
// endpoint serving.
//
// ISTHMUS_E2E_PODS=5000 makes the long run: more Pods, faster churn, longer
// outages. ISTHMUS_E2E_PATIENCE=4 multiplies the limits, for a machine that is
// busy with other work. With OUTAGE_DIR the clusters live in that folder and
// outlive the run; OUTAGE_BINARY replaces the endpoint's program.
package outage

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	endpoint = "multicluster-apiserver"
	// podsPerNode leaves room for the long run.
	podsPerNode = 5000
)

// world is what all tests share.
var world struct {
	labtest.World
	m1, m2, m3 *lab.Member
}

// size of the run.
var size = struct {
	pods     int
	churn    int // changes a second
	outage   time.Duration
	patience time.Duration // factor of limits
}{pods: 600, churn: 10, outage: 20 * time.Second, patience: 1}

func TestMain(m *testing.M) {
	if err := readSize(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(labtest.Main(m, &world.World, labtest.WorldOptions{
		Name: "outage",
		Members: []lab.Options{
			{Name: "m1", PodsPerNode: podsPerNode}, {Name: "m2", PodsPerNode: podsPerNode}, {Name: "m3", PodsPerNode: podsPerNode},
		},
		Join: []string{"m1", "m2"},
		After: func(w *labtest.World) error {
			world.m1, world.m2, world.m3 = w.Members[0], w.Members[1], w.Members[2]
			return nil
		},
	}))
}

func readSize() error {
	for name, set := range map[string]func(int){
		"ISTHMUS_E2E_PODS": func(n int) {
			size.pods = n
			if n >= 5000 {
				size.churn, size.outage = 50, time.Minute
			}
		},
		"ISTHMUS_E2E_PATIENCE": func(n int) { size.patience = time.Duration(n) },
	} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%s=%q is not a number above 0", name, text)
		}
		set(n)
	}
	return nil
}

// within is a limit on this machine.
func within(d time.Duration) time.Duration { return d * size.patience }
