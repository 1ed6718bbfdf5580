// Package chain looks at what a request that is routed to a member still gets
// from the handler chain of the endpoint, as one API server would give it:
// audit, flow control, limits, validation of fields, discovery, reviews, time.
//
//	TestMain -> m1, m2 (package lab) -> the endpoint with an audit log and a
//	            short --request-timeout, m1 and (through a proxy) m2 joined
//	tests    -> client-go and plain HTTP -> endpoint -> m1, m2
//
// With CHAIN_DIR the clusters live in that folder and outlive the run.
package chain

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// requestTimeout is the endpoint's limit of an ordinary request: long requests
// must outlive it.
const requestTimeout = 12 * time.Second

var world struct {
	labtest.World
	proxy *lab.Proxy // before m2
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  resources: [{group: "", resources: [pods, pods/exec]}]
- level: Metadata
`

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "chain-audit-")
	if err != nil {
		panic(err)
	}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		panic(err)
	}
	auditLog = filepath.Join(dir, "audit.log")
	code := labtest.Main(m, &world.World, labtest.WorldOptions{
		Name:    "chain",
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
		Join:    []string{"m1"},
		System: lab.SystemOptions{Flags: []string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog, "--audit-log-mode=blocking",
			"--request-timeout=" + requestTimeout.String(),
		}},
		After: joinThroughProxy,
	})
	if world.proxy != nil {
		world.proxy.Close()
	}
	if err := os.RemoveAll(dir); err != nil {
		code = max(code, 1)
	}
	os.Exit(code)
}

// auditLog is the endpoint's.
var auditLog string

func joinThroughProxy(w *labtest.World) (err error) {
	m2 := w.Member("m2")
	if world.proxy, err = m2.Proxy(); err != nil {
		return err
	}
	kubeconfig, err := m2.KubeconfigVia(world.proxy.Addr())
	if err != nil {
		return err
	}
	return joinWith(w, "m2", kubeconfig)
}

func joinWith(w *labtest.World, name, kubeconfig string) error {
	ctx, cancel := limited(2 * time.Minute)
	defer cancel()
	return errors.Join(w.System.Join(ctx, name, kubeconfig))
}
