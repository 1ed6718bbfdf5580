package propagation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// What one API server accepts, the members get, for the first time and again.
func TestLargeConfigMap(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	for _, letter := range []string{"a", "b"} {
		data := strings.Repeat(letter, 1_048_000)
		doc := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"d":%q}}`, data)
		kubectl(t, doc, "-n", ns, "apply", "--server-side", "-f", "-")
		for name, client := range members(t) {
			labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
				c, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "large", getNow)
				if err == nil && sha256.Sum256([]byte(c.Data["d"])) != sha256.Sum256([]byte(data)) {
					err = fmt.Errorf("%s has %d bytes of something else", name, len(c.Data["d"]))
				}
				return err
			})
		}
	}
}

const batchJobs = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: jobs}
spec:
  resourceSelectors: [{apiVersion: batch/v1, kind: Job}]
  placement: {clusterAffinity: {clusterNames: [m2]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: generated, labels: {mine: x}}
spec:
  parallelism: 1
  completions: 9
  suspend: true
  template: {metadata: {labels: {app: once}}, spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example.com/web:1"}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: manual}
spec:
  manualSelector: true
  suspend: true
  selector: {matchLabels: {own: selector}}
  template: {metadata: {labels: {own: selector}}, spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example.com/web:1"}]}}
`

// A Job's copy selects as its template does, generated or written; it can be
// changed again and again; its Pods go with it.
func TestSelectorsOfJobs(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, batchJobs, "-n", ns, "apply", "-f", "-")
	jobs := members(t)["m2"].BatchV1().Jobs(ns)
	own := get(t, ns, "job/generated", "{.metadata.uid}")
	parallel := func(want int32) {
		t.Helper()
		labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
			j, err := jobs.Get(ctx, "generated", getNow)
			if err != nil {
				return err
			}
			if j.Spec.Selector.MatchLabels["batch.kubernetes.io/controller-uid"] != own || j.Spec.Template.Labels["app"] != "once" ||
				j.Spec.Template.Labels["controller-uid"] != own || j.Labels["mine"] != "x" {
				return fmt.Errorf("selector %v, labels %v of a copy of the Job %s", j.Spec.Selector, j.Spec.Template.Labels, own)
			}
			if *j.Spec.Parallelism != want {
				return fmt.Errorf("parallelism %d, want %d", *j.Spec.Parallelism, want)
			}
			return nil
		})
	}
	parallel(1)
	for _, n := range []int32{2, 3} {
		kubectl(t, "", "-n", ns, "patch", "job", "generated", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, n))
		parallel(n)
	}
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		j, err := jobs.Get(ctx, "manual", getNow)
		if err == nil && (len(j.Spec.Selector.MatchLabels) != 1 || j.Spec.Selector.MatchLabels["own"] != "selector") {
			err = fmt.Errorf("the selector that somebody wrote became %v", j.Spec.Selector)
		}
		return err
	})
	pods := func(ctx context.Context) (int, error) {
		list, err := members(t)["m2"].CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=once"})
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	}
	kubectl(t, "", "-n", ns, "patch", "job", "generated", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		n, err := pods(ctx)
		if err == nil && n == 0 {
			err = errors.New("the Job has no Pods")
		}
		return err
	})
	kubectl(t, "", "-n", ns, "delete", "job", "generated", "--timeout=150s")
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		n, err := pods(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d Pods are left", n)
		}
		return err
	})
}

// kubectl says of an object which policy speaks, where it went, and why not.
func TestObjectsSayWhatHappened(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, strings.ReplaceAll(policyOver("  placement: {clusterAffinity: {clusterNames: [nowhere]}}\n"), "kind: Deployment}", "kind: Deployment, name: nowhere}"), "-n", ns, "apply", "-f", "-")
	// One of another version selects nothing.
	kubectl(t, strings.NewReplacer("name: web", "name: old", "apps/v1", "apps/v1beta1").Replace(policyOver("  placement: {clusterAffinity: {clusterNames: [m1]}}\n")), "-n", ns, "apply", "-f", "-")
	for _, name := range []string{"plain", "nowhere", "broken"} {
		kubectl(t, app(name, "", "10m", 3), "-n", ns, "apply", "-f", "-")
	}
	kubectl(t, strings.Replace(strings.Replace(policyOver("  placement: {}\n"), "name: web", "name: broken", 1), "kind: Deployment}", "kind: Deployment, name: broken}", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: broken}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: broken}]
  overrideRules: [{targetCluster: {clusterNames: [m2]}, overriders: {plaintext: [{path: /spec/none/such, operator: replace, value: 1}]}}]
`, "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "label", "deployment", "broken", "round=1")
	for name, wants := range map[string][]string{
		"plain":   {"ScheduleBindingSucceed", "by ClusterPropagationPolicy isthmus-default-", "SyncWorkSucceed"},
		"nowhere": {"ScheduleBindingFailed", "not selected by clusterAffinity", "Available +False +NoClusterFit"},
		"broken":  {"ApplyOverridePolicyFailed", "m2: ", "/spec/none"},
	} {
		labtest.Eventually(t, 40*time.Second, func(context.Context) error {
			said := kubectl(t, "", "-n", ns, "describe", "deployment", name)
			joined := strings.Join(strings.Fields(said), " ")
			for _, want := range wants {
				if !strings.Contains(joined, strings.ReplaceAll(want, " +", " ")) {
					return fmt.Errorf("%q is not in:\n%s", want, said)
				}
			}
			return nil
		})
	}
	// Where the override cannot be applied, what runs goes on; elsewhere it acts.
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		d, err := members(t)["m1"].AppsV1().Deployments(ns).Get(ctx, "broken", getNow)
		if err == nil && d.Labels["round"] != "1" {
			err = fmt.Errorf("in m1 the labels are %v", d.Labels)
		}
		return err
	})
	if d, err := members(t)["m2"].AppsV1().Deployments(ns).Get(t.Context(), "broken", getNow); err != nil || d.Labels["round"] != "" || d.DeletionTimestamp != nil {
		t.Errorf("in m2 the former copy is %v, %v", d.Labels, err)
	}
	kubectl(t, "", "-n", ns, "delete", "overridepolicy", "broken")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		d, err := members(t)["m2"].AppsV1().Deployments(ns).Get(ctx, "broken", getNow)
		if err == nil && d.Labels["round"] != "1" {
			err = fmt.Errorf("without the override m2 has the labels %v", d.Labels)
		}
		return err
	})
}
