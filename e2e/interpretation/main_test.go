// Package interpretation shows that the engine understands what users explain to
// it, explains what it has decided, and lives with GitOps tools:
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, both joined
//	tests    -> kubectl and subcommands -> the endpoint; the members' side is
//	            played by the test, as a controller or a GitOps tool would
package interpretation

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name: "interpretation", Join: []string{"m1", "m2"},
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
	}))
}

// kubectl runs against the endpoint.
func kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	return labtest.MustKubectl(t, world.System.Kubeconfig(), stdin, args...)
}

// in runs kubectl against a member.
func in(t testing.TB, member, stdin string, args ...string) labtest.Result {
	t.Helper()
	return labtest.Kubectl(t, world.Member(member).Kubeconfig(), stdin, args...)
}

// applied applies a manifest that may have to wait for its kind to be served.
func applied(t testing.TB, manifest string, args ...string) {
	t.Helper()
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), manifest, append(args, "apply", "-f", "-")...); res.Code != 0 {
			return fmt.Errorf("%s", res.Err)
		}
		return nil
	})
}

// comesTo waits until a command against a cluster prints what is wanted.
func comesTo(t testing.TB, kubeconfig, want string, args ...string) {
	t.Helper()
	labtest.Eventually(t, 90*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, kubeconfig, "", args...)
		if got := strings.TrimSpace(res.Out); got != want {
			return fmt.Errorf("kubectl %s: got %q (%s), want %q", strings.Join(args, " "), got, strings.TrimSpace(res.Err), want)
		}
		return nil
	})
}
