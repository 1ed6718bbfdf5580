package chain

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const deadAPIService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.dead.example.com}
spec:
  group: dead.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: kube-system, name: nowhere}
`

// quick is the longest that kubectl may take beside a dead group, on a busy
// machine: a group that is waited for costs it half a minute.
const quick = 15 * time.Second

// An aggregated group of a member that nobody serves breaks nothing: discovery
// is the same, the member's Pods are served and created, what is propagated
// arrives, and the Cluster says what could not be listed.
func TestDeadAggregatedGroup(t *testing.T) {
	config, m1 := labtest.Config(t, world.System), world.Member("m1")
	before := documents(t, config)
	killGroup(t, m1)
	// Asked for at once instead of when the next look is due.
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "label", "cluster", "m1", "looked="+labtest.UniqueName(t, "at"))
	ns := namespace(t)
	running(t, ns, inCluster(pod("web"), "m1"))
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "create", "configmap", "settings")
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, m1).CoreV1().ConfigMaps(ns).Get(ctx, "settings", metav1.GetOptions{})
		return err
	})
	for path, body := range documents(t, config) {
		if !bytes.Equal(body, before[path]) {
			t.Errorf("%s has changed: %d bytes, then %d", path, len(before[path]), len(body))
		}
	}
	labtest.Eventually(t, 90*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "get", "cluster", "m1", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="CompleteAPIEnablements")].message}`)
		if res.Code != 0 || !bytes.Contains([]byte(res.Out), []byte("dead.example.com")) || res.Out[:4] != "True" {
			return fmt.Errorf("the Cluster says %q %s", res.Out, res.Err)
		}
		return nil
	})
}

// killGroup gives a member an aggregated group that nobody serves, until revive or
// the end of the test.
func killGroup(t *testing.T, m *lab.Member) (revive func()) {
	t.Helper()
	revive = func() {
		labtest.Kubectl(t, m.Kubeconfig(), "", "delete", "apiservice", "v1.dead.example.com", "--ignore-not-found")
	}
	t.Cleanup(revive)
	labtest.MustKubectl(t, m.Kubeconfig(), deadAPIService, "apply", "-f", "-")
	labtest.MustKubectl(t, m.Kubeconfig(), "", "wait", "--for=condition=Available=false", "apiservice/v1.dead.example.com", "--timeout=150s")
	return revive
}

// A namespace that is deleted while a member has a dead group loses its Pods in
// every cluster meanwhile, kubectl stays quick, and the namespace itself is gone
// everywhere once the group is.
func TestNamespaceGoesBesideDeadGroup(t *testing.T) {
	admin, m1, m2 := world.System.Kubeconfig(), world.Member("m1"), world.Member("m2")
	ns := labtest.NamespaceName(t)
	labtest.MustKubectl(t, admin, "", "create", "namespace", ns)
	running(t, ns, inCluster(pod("one"), "m1"))
	running(t, ns, inCluster(pod("two"), "m2"))
	revive := killGroup(t, m1)
	// The first call of this kubectl fetches what discovery has.
	for _, args := range [][]string{{"get", "pods"}, {"get", "pods"}, {"get", "deployments,services"}} {
		res := labtest.Kubectl(t, admin, "", append([]string{"-n", ns}, args...)...)
		if res.Code != 0 || strings.Contains(res.Err, "dead.example.com") || res.Took > quick {
			t.Errorf("kubectl %v: exit %d after %s, %q; want success within %s", args, res.Code, res.Took, res.Err, quick)
		}
	}
	labtest.MustKubectl(t, admin, "", "delete", "namespace", ns, "--wait=false")
	labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
		list, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d Pods are served yet, the first is %s of %s", len(list.Items), list.Items[0].Name, list.Items[0].Labels[clusterLabel])
		}
		return err
	})
	revive()
	for name, client := range map[string]kubernetes.Interface{"m1": labtest.Client(t, m1), "m2": labtest.Client(t, m2), "the endpoint": endpoint(t)} {
		labtest.Eventually(t, 3*time.Minute, func(ctx context.Context) error {
			left, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("%s is %s with %+v", ns, left.Status.Phase, left.Status.Conditions)
			}
			return fmt.Errorf("in %s: %w", name, err)
		})
	}
}
