package chain

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// An aggregated group of a member that nobody serves breaks nothing: discovery
// is the same, the member's Pods are served and created, what is propagated
// arrives, and the Cluster says what could not be listed.
func TestDeadAggregatedGroup(t *testing.T) {
	config, m1 := labtest.Config(t, world.System), world.Member("m1")
	before := documents(t, config)
	labtest.MustKubectl(t, m1.Kubeconfig(), deadAPIService, "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, m1.Kubeconfig(), "", "delete", "apiservice", "v1.dead.example.com") })
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "wait", "--for=condition=Available=false", "apiservice/v1.dead.example.com", "--timeout=150s")
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
