// Package journey does what users do, against one plain cluster and against the
// endpoint over two members, with unmodified kubectl and client-go:
//
//	TestMain -> plain, m1, m2 (package lab) -> the endpoint, m1 and m2 joined
//	tests    -> kubectl and client-go -> plain | endpoint -> m1, m2
//
// With JOURNEY_DIR the clusters live in that folder and outlive the run, so that
// the next run finds them; JOURNEY_BINARY replaces the endpoint's program.
package journey

import (
	"os"
	"testing"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// world is what all tests share.
var world struct {
	labtest.World
	plain, m1, m2 *lab.Member
}

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world.World, labtest.WorldOptions{
		Name:    "journey",
		Members: []lab.Options{{Name: "plain", Metrics: true}, {Name: "m1", Metrics: true}, {Name: "m2"}},
		Join:    []string{"m1", "m2"},
		After: func(w *labtest.World) error {
			world.plain, world.m1, world.m2 = w.Members[0], w.Members[1], w.Members[2]
			return nil
		},
	}))
}
