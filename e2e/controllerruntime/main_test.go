// Package controllerruntime runs controller-runtime's own tests of its cache and
// its client against the endpoint. They are written for an API server whose
// Pods nobody runs, so the clusters here have no nodes of their own:
//
//	TestMain -> plain, m1, m2 (package lab) -> the endpoint, m1 and m2 joined
//	suites   -> a relay that names a cluster for new Nodes -> endpoint | plain
//
// differs.txt lists the specs that are not passed, with the reason. Nothing is run
// unless CONTROLLER_RUNTIME says endpoint, or plain for comparison (make clients);
// FOCUS chooses specs. CONTROLLERRUNTIME_DIR keeps the clusters.
package controllerruntime

import (
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

const (
	mode    = "CONTROLLER_RUNTIME"
	onPlain = "plain"
)

func TestMain(m *testing.M) {
	if os.Getenv(mode) == "" {
		fmt.Println("skipped: takes eight minutes; make clients runs it")
		return
	}
	opts := labtest.WorldOptions{
		Name:    "controllerruntime",
		Members: []lab.Options{{Name: "m1", Nodes: lab.NoNodes}, {Name: "m2", Nodes: lab.NoNodes}},
		Join:    []string{"m1", "m2"},
	}
	if os.Getenv(mode) == onPlain {
		opts.Members, opts.Join = append(opts.Members, lab.Options{Name: "plain", Nodes: lab.NoNodes}), nil
	}
	os.Exit(labtest.Main(m, &world, opts))
}
