package propagation

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// TestManyPolicies measures, end to end, what the benchmarks of package placement
// measure without members. It runs only with ISTHMUS_POLICIES, the number of
// policies, each of which has one template.
func TestManyPolicies(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("ISTHMUS_POLICIES"))
	if err != nil || n <= 0 {
		t.Skip("a measurement: ISTHMUS_POLICIES is not set")
	}
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	config := labtest.Config(t, world.System)
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var policies strings.Builder
	for i := range n {
		fmt.Fprintf(&policies, `---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: p-%[1]d}
spec:
  priority: 1
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: one-%[1]d}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
`, i)
	}
	kubectl(t, policies.String()+`---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {set: all}}}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
`, "-n", ns, "create", "-f", "-")

	create := func(name, set string) {
		_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"set": set}}, Data: map[string]string{"a": "b"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for i := range n {
		create(fmt.Sprintf("one-%d", i), "one")
	}
	t.Logf("%d templates with a policy each: created in %s, in m1 %s later", n, since(began), arrive(t, ns, "m1", "set=one", n))
	for i := range n {
		create(fmt.Sprintf("all-%d", i), "all")
	}
	t.Logf("%d templates with one policy: in m1 %s later", n, arrive(t, ns, "m1", "set=all", n))
	create("new", "all")
	t.Logf("a new template among %d policies: in m1 after %s", n, arrive(t, ns, "m1", "set=all", n+1))
	kubectl(t, "", "-n", ns, "patch", "propagationpolicy", "p-0", "--type=merge", "-p", `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["m1","m3"]}}}}`)
	t.Logf("a policy of one template changed: in m3 %s after kubectl", arrive(t, ns, "m3", "set=one", 1))
	kubectl(t, "", "-n", ns, "patch", "propagationpolicy", "all", "--type=merge", "-p", `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["m1","m2"]}}}}`)
	t.Logf("a policy of %d templates changed: in m2 %s after kubectl", n+1, arrive(t, ns, "m2", "set=all", n+1))
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }

// arrive waits until a member has so many ConfigMaps, and says how long.
func arrive(t *testing.T, ns, cluster, selector string, n int) time.Duration {
	t.Helper()
	began := time.Now()
	m := members(t)[cluster]
	labtest.Eventually(t, 5*time.Minute, func(ctx context.Context) error {
		list, err := m.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) < n {
			err = fmt.Errorf("%s has %d of %d", cluster, len(list.Items), n)
		}
		return err
	})
	return since(began)
}
