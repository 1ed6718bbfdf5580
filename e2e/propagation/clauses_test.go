package propagation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// One ReplicaSet stands for each revision, over all clusters; the Pods of the
// members are its own.
func TestOneReplicaSetPerRevision(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, divided(1, 1, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(3, "{maxSurge: 3, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "patch", "deployment/web", "-p", `{"spec":{"revisionHistoryLimit":1}}`)
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	for i := range 2 {
		kubectl(t, "", "-n", ns, "set", "image", "deployment/web", fmt.Sprintf("web=registry.example.com/web:%d", i+2))
		kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	}
	client := labtest.Client(t, world.System)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		d, errD := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		sets, errS := client.AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{})
		pods, errP := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err := errors.Join(errD, errS, errP); err != nil {
			return err
		}
		return checkRevisions(d, sets.Items, pods.Items)
	})
	if out := kubectl(t, "", "-n", ns, "rollout", "history", "deployment/web"); !strings.Contains(out, "\n2 ") || !strings.Contains(out, "\n3 ") || strings.Contains(out, "\n1 ") {
		t.Errorf("history with a limit of one old revision:\n%s", out)
	}
}

func checkRevisions(d *appsv1.Deployment, sets []appsv1.ReplicaSet, pods []corev1.Pod) error {
	var current types.UID
	var selector labels.Selector
	for _, s := range sets {
		owner := metav1.GetControllerOf(&s)
		if owner == nil || owner.UID != d.UID || s.Labels["isthmus.dev/cluster"] != "" {
			return fmt.Errorf("ReplicaSet %s: owner %v, labels %v", s.Name, owner, s.Labels)
		}
		if *s.Spec.Replicas > 0 {
			current = s.UID
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(s.Spec.Selector); err != nil {
				return err
			}
			if *s.Spec.Replicas != 3 || s.Status.ReadyReplicas != 3 || s.Annotations["deployment.kubernetes.io/revision"] != "3" {
				return fmt.Errorf("current ReplicaSet: %d wanted, %d ready, %v", *s.Spec.Replicas, s.Status.ReadyReplicas, s.Annotations)
			}
		}
	}
	if len(sets) != 2 || current == "" {
		return fmt.Errorf("%d ReplicaSets, want the present and one old revision", len(sets))
	}
	for _, p := range pods {
		if owner := metav1.GetControllerOf(&p); p.DeletionTimestamp == nil && (owner == nil || owner.UID != current) {
			return fmt.Errorf("Pod %s has the owner %v", p.Name, owner)
		}
		if p.DeletionTimestamp == nil && !selector.Matches(labels.Set(p.Labels)) {
			return fmt.Errorf("Pod %s is not selected by %s: %v", p.Name, selector, p.Labels)
		}
	}
	return nil
}

const limits = `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, default: {cpu: 123m}, defaultRequest: {cpu: 12m}}]}
`

// LimitRanges and the labels of pod security act in the members.
func TestLimitsAndPodSecurity(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, "", "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
	kubectl(t, limits, "-n", ns, "apply", "-f", "-")
	for name, client := range members(t) {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			got, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			if err != nil {
				return err
			}
			l, err := client.CoreV1().LimitRanges(ns).Get(ctx, "defaults", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got.Labels["pod-security.kubernetes.io/enforce"] != "restricted" || len(l.Spec.Limits) != 1 {
				return fmt.Errorf("%s: %v %v", name, got.Labels, l.Spec)
			}
			return nil
		})
	}
	const plain = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"plain","labels":{"isthmus.dev/cluster":"m2"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1"}]}}`
	res := labtest.Kubectl(t, world.System.Kubeconfig(), plain, "-n", ns, "create", "-f", "-")
	if res.Code == 0 || !strings.Contains(res.Err, "PodSecurity") {
		t.Errorf("a Pod without restrictions: exit %d, %s", res.Code, res.Err)
	}
	kubectl(t, "", "label", "namespace", ns, "pod-security.kubernetes.io/enforce-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), plain, "-n", ns, "create", "-f", "-"); res.Code != 0 {
			return errors.New(res.Err)
		}
		return nil
	})
	if out := kubectl(t, "", "-n", ns, "get", "pod", "plain", "-o", "jsonpath={.spec.containers[0].resources.limits.cpu}"); out != "123m" {
		t.Errorf("the limit is %q", out)
	}
}

const bindings = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME-a, labels: {set: NAME}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME-b, labels: {set: NAME}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: NAME}
spec:
  resourceSelectors:
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, labelSelector: {matchLabels: {set: NAME}}}
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, name: NAME-b}
  placement: {clusterAffinity: {clusterNames: [m1, m3]}}
`

// A ClusterRoleBinding is placed when a policy names it, not when one merely
// selects it. (Whether a member lets us write it is the join's to say.)
func TestClusterRoleBindingsAreNamed(t *testing.T) {
	t.Parallel()
	name := labtest.UniqueName(t, "binding")
	text := strings.ReplaceAll(bindings, "NAME", name)
	kubectl(t, text, "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, world.System.Kubeconfig(), text, "delete", "--wait=false", "-f", "-") })
	where := func(name string) string {
		return labtest.Kubectl(t, world.System.Kubeconfig(), "", "get", "clusterresourcebinding", name+"-clusterrolebinding",
			"-o", "jsonpath={.spec.clusters[*].name}").Out
	}
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if at := where(name + "-b"); at != "m1 m3" {
			return fmt.Errorf("the named one is placed in %q", at)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // the other would be placed by now
	if at := where(name + "-a"); at != "" {
		t.Errorf("the one that is only selected is placed in %q", at)
	}
}

const jobs = `
apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec:
  ttlSecondsAfterFinished: 3
  template: {spec: {restartPolicy: Never, containers: [{name: web, image: "registry.example.com/web:1"}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  template: {spec: {restartPolicy: Never, containers: [{name: web, image: "registry.example.com/web:1"}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: everywhere}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: "registry.example.com/web:1"}]}}}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: jobs}
spec:
  resourceSelectors: [{apiVersion: batch/v1, kind: Job, name: indexed}]
  placement:
    clusterAffinity: {clusterNames: [m1, m2]}
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m1]}, weight: 1}, {targetCluster: {clusterNames: [m2]}, weight: 1}]}}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: crons}
spec:
  resourceSelectors: [{apiVersion: batch/v1, kind: CronJob, name: everywhere}]
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
`

// The TTL of a Job is the control plane's; indexes are not divided; a CronJob in
// several clusters is told of.
func TestJobs(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, jobs, "-n", ns, "apply", "-f", "-")
	copies := map[string]*batchv1.Job{}
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		for member, client := range members(t) {
			for _, name := range []string{"short", "indexed"} {
				if j, err := client.BatchV1().Jobs(ns).Get(ctx, name, metav1.GetOptions{}); err == nil {
					copies[name+" "+member] = j
				} else if !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		if len(copies) < 2 {
			return fmt.Errorf("%d copies", len(copies))
		}
		return nil
	})
	for at, j := range copies {
		if j.Spec.TTLSecondsAfterFinished != nil {
			t.Errorf("%s has a TTL", at)
		}
		// Whole in each of its clusters, never a part; the default policy may have
		// been faster than its own.
		if strings.HasPrefix(at, "indexed") && *j.Spec.Completions != 4 {
			t.Errorf("the indexes are divided: %d completions in %s", *j.Spec.Completions, at)
		}
	}
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		for member, client := range members(t) {
			if _, err := client.BatchV1().Jobs(ns).Get(ctx, "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the finished Job is still in %s: %w", member, err)
			}
		}
		if _, err := labtest.Client(t, world.System).BatchV1().Jobs(ns).Get(ctx, "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the finished template is still there: %w", err)
		}
		return nil
	})
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		out := kubectl(t, "", "-n", ns, "get", "events", "--field-selector", "involvedObject.name=everywhere,type=Warning")
		if !strings.Contains(out, "everywhere") {
			return errors.New("no Warning about a CronJob in two clusters")
		}
		return nil
	})
}

// Churn in the members does not become writes of the template.
func TestStatusWritesAreFew(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, divided(1, 1, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(3, "{maxSurge: 3, maxUnavailable: 0}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	time.Sleep(3 * time.Second)
	templates := labtest.Client(t, world.System).AppsV1().Deployments(ns)
	before, err := templates.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := templates.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion, FieldSelector: "metadata.name=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const seconds = 20
	changes := 0
	for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, client := range members(t) {
			churn(t, client, ns, changes)
		}
		changes++
	}
	writes := 0
	for done := false; !done; {
		select {
		case <-w.ResultChan():
			writes++
		case <-time.After(time.Second):
			done = true
		}
	}
	if limit := seconds/10 + 1; writes > limit {
		t.Errorf("%d writes of the template in %d s of churn (%d changes in each member), want at most %d", writes, seconds, changes, limit)
	}
}

// churn changes the status of a copy without any readiness edge.
func churn(t *testing.T, client kubernetes.Interface, ns string, i int) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []map[string]any{{
		"type": "Churn", "status": "True", "reason": "Churn", "message": fmt.Sprint(i), "lastUpdateTime": metav1.Now(), "lastTransitionTime": metav1.Now(),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// A member that does not answer holds up a rollout for a grace only, and the
// template says which one it was. It freezes a member, so nothing runs beside it.
func TestUnreachableMemberLeavesTheGate(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, divided(1, 1, 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(6, "{maxSurge: 3, maxUnavailable: 3}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	failing := beforeTheFreeze(t)
	m3 := world.Member("m3")
	if err := m3.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() { // the next test finds it followed again
		if err := m3.Thaw(); err != nil {
			t.Error(err)
		}
		labtest.Eventually(t, 90*time.Second, func(ctx context.Context) error {
			d, err := labtest.Client(t, m3).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			if err == nil && d.Spec.Template.Spec.Containers[0].Image != "registry.example.com/web:2" {
				err = fmt.Errorf("m3 still runs %s", d.Spec.Template.Spec.Containers[0].Image)
			}
			return err
		})
		afterTheThaw(t, failing)
	}()
	kubectl(t, "", "-n", ns, "set", "image", "deployment/web", "web=registry.example.com/web:2")
	started := time.Now()
	duringTheFreeze(t, failing)
	labtest.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
		d, err := labtest.Client(t, world.System).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation {
			return fmt.Errorf("generation %d of %d is observed", d.Status.ObservedGeneration, d.Generation)
		}
		for _, c := range d.Status.Conditions {
			if c.Type == "Stale" && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "m3") {
				return nil
			}
		}
		return fmt.Errorf("no condition names m3: %+v", d.Status.Conditions)
	})
	t.Logf("the gate opened after %s", time.Since(started).Round(time.Second))
	if time.Since(started) < 10*time.Second {
		t.Error("the member was not waited for at all")
	}
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		for _, name := range []string{"m1", "m2"} {
			d, err := labtest.Client(t, world.Member(name)).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if d.Spec.Template.Spec.Containers[0].Image != "registry.example.com/web:2" || d.Status.UpdatedReplicas != *d.Spec.Replicas {
				return fmt.Errorf("%s: %s, %d updated", name, d.Spec.Template.Spec.Containers[0].Image, d.Status.UpdatedReplicas)
			}
		}
		return nil
	})
}
