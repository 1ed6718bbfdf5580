package kinds

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const limitedRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited}
rules:
- {apiGroups: [""], resources: [pods, pods/log, events], verbs: ["*"]}
- {apiGroups: [metrics.k8s.io], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: USER}
rules:
- {apiGroups: [cluster.karmada.io], resources: [clusters/access], resourceNames: [m1], verbs: ["*"]}
- {apiGroups: [cluster.karmada.io], resources: [clusters/access], resourceNames: [m2], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: USER}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]
`

// A user whose permission ends at a cluster: everything in m1, single reads in
// m2. Whatever would leave m2 out is refused and says what would do.
func TestPermissionOfClusters(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	user := labtest.UniqueName(t, "carol")
	apply(t, admin, ns, strings.ReplaceAll(limitedRole, "USER", user))
	t.Cleanup(func() {
		labtest.Kubectl(t, admin, "", "delete", "clusterrole,clusterrolebinding", user)
	})
	carol := filepath.Join(t.TempDir(), "carol.kubeconfig")
	if _, err := world.System.Command(t.Context(), "kubeconfig", "--user", user, "--data-dir", world.System.DataDir(),
		"--kubeconfig", admin, "-o", carol); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m1", "m2"} {
		labtest.MustKubectl(t, world.Member(name).Kubeconfig(), "", "-n", ns, "run", "in-"+name, "--image=c")
	}
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if res := labtest.Kubectl(t, carol, "", "-n", ns, "get", "pod", "in-m2"); res.Code != 0 {
			return fmt.Errorf("get: %+v", res)
		}
		return nil
	})
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"get pod in-m1", 0, "in-m1"},
		{"get pods", 1, "isthmus.dev/cluster in (m1)"},
		{"get pods -l isthmus.dev/cluster=m1", 0, "in-m1"},
		{"get pods -l isthmus.dev/cluster=m2", 1, "not in m2"},
		{"get events", 1, "isthmus.dev/cluster in (m1)"},
		{"get pods --watch --request-timeout=2s", 1, "isthmus.dev/cluster in (m1)"},
		{"get pods.metrics.k8s.io", 1, "isthmus.dev/cluster in (m1)"},
		{"delete pod in-m2 --wait=false", 1, `not permitted in cluster "m2"`},
		{"label pod in-m2 a=b", 1, `not permitted in cluster "m2"`},
		{"label pod in-m1 a=b", 0, "labeled"},
		{"delete pods --all --wait=false", 1, "isthmus.dev/cluster in (m1)"},
		{"run third --image=c --labels=isthmus.dev/cluster=m2", 1, `not permitted in cluster "m2"`},
		{"delete pod in-m1 --wait=false", 0, "deleted"},
	} {
		res := labtest.Kubectl(t, carol, "", append([]string{"-n", ns}, strings.Fields(c.args)...)...)
		if res.Code != c.code || !strings.Contains(res.Out+res.Err, c.says) {
			t.Errorf("%s: %+v, want %d and %q", c.args, res, c.code, c.says)
		}
	}
	// Wherever there is room elsewhere, this user's Pods go to m1.
	for i := range 4 {
		labtest.MustKubectl(t, carol, "", "-n", ns, "run", fmt.Sprintf("free-%d", i), "--image=c")
	}
	out := labtest.MustKubectl(t, admin, "", "-n", ns, "get", "pods", "-L", "isthmus.dev/cluster", "--no-headers")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "free-") && !strings.HasSuffix(strings.TrimSpace(line), "m1") {
			t.Errorf("not in m1: %s", line)
		}
	}
}
