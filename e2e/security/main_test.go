// Package security tries what must not be possible, and who may do what by the
// kinds of authentication that kube-apiserver has.
//
//	TestMain -> an OpenID Connect issuer and a token webhook on loopback
//	         -> m1, m2 (package lab); m2 is reached through an impostor that
//	            answers in its place when told to
//	         -> the endpoint, m1 and m2 joined, a high log level, an audit log
//	tests    -> client-go, kubectl and raw connections -> endpoint -> members
package security

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world struct {
	labtest.World
	issuer   *issuer
	reviewer *reviewer
	impostor *impostor // before m2
	dir      string    // files of the endpoint's flags
}

// Secrets are audited by name alone, as Kubernetes advises.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: "", resources: [secrets, serviceaccounts/token]}, {group: authentication.k8s.io}]
- level: RequestResponse
`

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if world.dir, err = os.MkdirTemp("", "security-flags-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(world.dir)) }()
	world.issuer, world.reviewer = newIssuer(), newReviewer()
	defer world.issuer.server.Close()
	defer world.reviewer.server.Close()
	flags, err := systemFlags()
	if err != nil {
		return 1, err
	}
	code = labtest.Main(m, &world.World, labtest.WorldOptions{
		Name:    "security",
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
		Join:    []string{"m1"},
		System:  lab.SystemOptions{Flags: flags},
		After:   joinImpostor,
	})
	if world.impostor != nil {
		world.impostor.close()
	}
	return code, nil
}

func auditPath() string { return filepath.Join(world.dir, "audit.log") }

func systemFlags() ([]string, error) {
	policy, ca, webhook := filepath.Join(world.dir, "policy.yaml"), filepath.Join(world.dir, "issuer.pem"), filepath.Join(world.dir, "webhook.kubeconfig")
	if err := errors.Join(
		os.WriteFile(policy, []byte(auditPolicy), 0o600),
		os.WriteFile(ca, certificate(world.issuer.server), 0o600),
		os.WriteFile(webhook, kubeconfigOf(world.reviewer.server, ""), 0o600),
	); err != nil {
		return nil, err
	}
	return []string{
		"--v=9", "--audit-policy-file=" + policy, "--audit-log-path=" + auditPath(), "--audit-log-mode=blocking",
		"--oidc-issuer-url=" + world.issuer.server.URL, "--oidc-ca-file=" + ca, "--oidc-client-id=" + clientID,
		"--oidc-username-claim=sub", "--oidc-username-prefix=oidc:", "--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:",
		"--authentication-token-webhook-config-file=" + webhook, "--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-cache-ttl=1s",
	}, nil
}

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// joinImpostor lets m2 join by the impostor's address and certificate.
func joinImpostor(w *labtest.World) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	m2 := w.Member("m2")
	i, err := newImpostor(m2)
	if err != nil {
		return err
	}
	world.impostor = i
	token, err := administratorToken(ctx, m2)
	if err != nil {
		return err
	}
	path := filepath.Join(world.dir, "m2.kubeconfig")
	if err := os.WriteFile(path, kubeconfigOf(i.server, token), 0o600); err != nil {
		return err
	}
	return w.System.Join(ctx, "m2", path)
}

func endpoint(t testing.TB) kubernetes.Interface {
	t.Helper()
	return labtest.Client(t, world.System)
}
