package journey

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const readerRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`

// A user has the rights that the endpoint's RBAC gives, over cached reads,
// watches, streams and proxies alike, and `auth can-i` says the same.
func TestRights(t *testing.T) {
	t.Parallel()
	admin := world.System.Kubeconfig()
	mine, other := labtest.Namespace(t, admin), labtest.Namespace(t, admin)
	labtest.MustKubectl(t, admin, readerRole, "-n", mine, "apply", "-f", "-")
	for _, ns := range []string{mine, other} {
		runPod(t, admin, ns, "web")
	}
	bob := filepath.Join(t.TempDir(), "bob.kubeconfig")
	if _, err := world.System.Command(t.Context(), "kubeconfig", "--user", "bob", "--data-dir", world.System.DataDir(),
		"--kubeconfig", admin, "-o", bob); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		if res := labtest.Kubectl(t, bob, "", "-n", mine, "get", "pods"); res.Code != 0 {
			return fmt.Errorf("the role does not act: %+v", res)
		}
		return nil
	})
	t.Run("requests", func(t *testing.T) { testRequests(t, bob, mine, other) })
	t.Run("exec", func(t *testing.T) {
		if res := labtest.Kubectl(t, bob, "", "-n", mine, "exec", "web", "--", "sh", "-c", "exit 5"); res.Code != 5 {
			t.Errorf("in %s: %+v", mine, res)
		}
		if res := labtest.Kubectl(t, bob, "", "-n", other, "exec", "web", "--", "true"); res.Code != 1 || !strings.Contains(res.Err, "forbidden") {
			t.Errorf("in %s: %+v", other, res)
		}
	})
	t.Run("can-i", func(t *testing.T) { testCanI(t, bob, mine, other) })
}

func testRequests(t *testing.T, kubeconfig, mine, other string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const watch = "?watch=true&timeoutSeconds=1"
	for _, c := range []struct {
		method, path string
		mine, other  int
	}{
		{"GET", "/api/v1/namespaces/NS/pods/web", 200, 403},
		{"GET", "/api/v1/namespaces/NS/pods/none", 404, 403},
		{"GET", "/api/v1/namespaces/NS/pods", 200, 403},
		{"GET", "/api/v1/namespaces/NS/pods" + watch, 200, 403},
		{"GET", "/api/v1/namespaces/NS/pods" + watch + "&fieldSelector=metadata.name%3Dweb", 200, 403},
		{"GET", "/api/v1/namespaces/NS/pods/web/log", 200, 403},
		{"GET", "/api/v1/namespaces/NS/pods/web/status", 403, 403},
		{"GET", "/api/v1/namespaces/NS/pods/web/proxy/", 403, 403},
		{"GET", "/api/v1/namespaces/NS/pods/web/portforward", 403, 403},
		{"GET", "/api/v1/namespaces/NS/pods/web/attach", 403, 403},
		{"DELETE", "/api/v1/namespaces/NS/pods/web", 403, 403},
		{"DELETE", "/api/v1/namespaces/NS/pods", 403, 403},
		{"GET", "/api/v1/namespaces/NS/events", 403, 403},
		{"GET", "/api/v1/namespaces/NS/configmaps", 403, 403},
		{"GET", "/apis/apps/v1/namespaces/NS/replicasets", 403, 403},
		{"GET", "/apis/apps/v1/namespaces/NS/deployments/none", 403, 403},
		{"GET", "/apis/metrics.k8s.io/v1beta1/namespaces/NS/pods", 403, 403},
		{"GET", "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/NS/pods", 403, 403},
		{"GET", "/apis/cluster.karmada.io/v1alpha1/clusters/m1", 403, 403},
		{"GET", "/api/v1/pods", 403, 403},
		{"GET", "/api/v1/pods" + watch, 403, 403},
		{"GET", "/api/v1/nodes", 403, 403},
		{"GET", "/apis/metrics.k8s.io/v1beta1/nodes", 403, 403},
		{"GET", "/metrics", 403, 403},
		{"GET", "/version", 200, 200},
	} {
		for ns, want := range map[string]int{mine: c.mine, other: c.other} {
			path := strings.ReplaceAll(c.path, "NS", ns)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			r, err := http.NewRequestWithContext(ctx, c.method, config.Host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%s %s: %v", c.method, path, err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			cancel()
			if resp.StatusCode != want {
				t.Errorf("%s %s: %d, want %d: %.300s (%v)", c.method, path, resp.StatusCode, want, body, err)
			}
		}
	}
}

func testCanI(t *testing.T, bob, mine, other string) {
	for _, c := range []struct{ verb, resource, mine string }{
		{"get", "pods", "yes"},
		{"list", "pods", "yes"},
		{"watch", "pods", "yes"},
		{"get", "pods/log", "yes"},
		{"create", "pods/exec", "yes"},
		{"delete", "pods", "no"},
		{"create", "pods/portforward", "no"},
		{"get", "pods/proxy", "no"},
		{"list", "events", "no"},
		{"list", "pods.metrics.k8s.io", "no"},
	} {
		resource, subresource, _ := strings.Cut(c.resource, "/")
		for ns, want := range map[string]string{mine: c.mine, other: "no"} {
			res := labtest.Kubectl(t, bob, "", "-n", ns, "auth", "can-i", c.verb, resource, "--subresource="+subresource)
			if got := strings.TrimSpace(res.Out); got != want || (res.Code == 0) != (want == "yes") {
				t.Errorf("can-i %s %s in %s: %+v, want %s", c.verb, c.resource, ns, res, want)
			}
		}
	}
}
