// Package adoption takes over what runs in members, and looks at what changes
// there, which should be nothing but ownership:
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, both joined
//	tests    -> workloads of random field managers in the members -> snapshot
//	         -> adopt, changes of the template, release -> snapshot
//
// ISTHMUS_E2E_WORKLOADS=200 makes the long run. With ADOPTION_DIR the clusters
// live in that folder and outlive the run; ADOPTION_BINARY replaces the
// endpoint's program.
package adoption

import (
	"os"
	"strconv"
	"testing"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name:    "adoption",
		Members: []lab.Options{{Name: "m1", PodsPerNode: 1000}, {Name: "m2", PodsPerNode: 1000}},
		Join:    []string{"m1", "m2"},
	}))
}

// workloads is how many are taken over at once.
func workloads(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ISTHMUS_E2E_WORKLOADS")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ISTHMUS_E2E_WORKLOADS=%q is not a number above 0", text)
	}
	return n
}
