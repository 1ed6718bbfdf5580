package propagation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const federatedQuota = `
apiVersion: policy.karmada.io/v1alpha1
kind: FederatedResourceQuota
metadata: {name: limit}
spec:
  overall: {pods: "10", requests.memory: 4Gi}
  staticAssignments:
  - {clusterName: m1, hard: {pods: "3"}}
  - {clusterName: m2, hard: {pods: "2", requests.memory: 1Gi}}
`

// A file of another system becomes ResourceQuotas: what is assigned, and the rest
// where nothing is. Its status tells what is used, in all and in each.
func TestFederatedQuota(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, federatedQuota, "-n", ns, "apply", "-f", "-")
	waitLimits(t, ns, corev1.ResourcePods, map[string]string{"m1": "3", "m2": "2", "m3": "5"})
	kubectl(t, divided(2, 1, 3), "-n", ns, "apply", "-f", "-")
	manifest := strings.Replace(deployment(6, "{maxSurge: 0, maxUnavailable: 1}"), "cpu: 10m", "cpu: 10m, memory: 1Mi", 1)
	kubectl(t, manifest, "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout", "90s")
	show := func(path string) string {
		return kubectl(t, "", "-n", ns, "get", "federatedresourcequota", "limit", "-o", "jsonpath="+path)
	}
	labtest.Eventually(t, 60*time.Second, func(context.Context) error {
		got := show("{.status.overall.pods}/{.status.overallUsed.pods}/{.status.overallUsed.requests\\.memory}" +
			"{range .status.aggregatedStatus[*]} {.clusterName}={.used.pods}/{.hard.pods}{end}")
		if want := "10/6/6Mi m1=2/3 m2=1/2"; got != want {
			return fmt.Errorf("status %q, want %q", got, want)
		}
		return nil
	})

	for manifest, want := range map[string]string{
		strings.Replace(federatedQuota, `pods: "3"`, `pods: "9"`, 1):           "11 of pods are assigned, and spec.overall allows 10",
		strings.Replace(federatedQuota, `pods: "3"`, `requests.cpu: "9"`, 1):   "spec.staticAssignments[0].hard[requests.cpu]: is not among spec.overall",
		strings.Replace(federatedQuota, `pods: "10"`, `pods: "10", hue: 1`, 1): "spec.overall[hue]",
	} {
		if got := labtest.Kubectl(t, world.System.Kubeconfig(), manifest, "-n", ns, "apply", "-f", "-"); got.Code == 0 || !strings.Contains(got.Err, want) {
			t.Errorf("%s\n%d: %s, want %s", manifest, got.Code, got.Err, want)
		}
	}

	kubectl(t, "", "-n", ns, "delete", "federatedresourcequota", "limit")
	for name, client := range members(t) {
		labtest.Eventually(t, 60*time.Second, func(ctx context.Context) error {
			list, err := client.CoreV1().ResourceQuotas(ns).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("%s has %d quotas", name, len(list.Items))
			}
			return err
		})
	}
}
