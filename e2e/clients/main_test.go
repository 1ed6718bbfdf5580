// Package clients puts programs in front of the endpoint that nobody of this
// project wrote, or that client-go ships: controller-runtime's own tests, the
// JavaScript client, informers that check themselves.
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, m1 and m2 joined
//	tests    -> programs built or installed by package artifacts -> endpoint
//
// With CLIENTS_DIR the clusters live in that folder and outlive the run.
package clients

import (
	"os"
	"testing"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name:    "clients",
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
		Join:    []string{"m1", "m2"},
	}))
}
