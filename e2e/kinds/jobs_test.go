package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

const tick = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: tick}
spec:
  resourceSelectors: [{apiVersion: batch/v1, kind: CronJob, name: tick}]
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: c}]
`

// The Jobs that the members make of a CronJob are seen at the endpoint, owned by
// the template; Jobs of one name have their own Pods each. A Job that was
// created at the endpoint is shown once.
func TestJobsOfACronJob(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	apply(t, admin, ns, tick)
	for _, name := range []string{"m1", "m2"} {
		kubeconfig := world.Member(name).Kubeconfig()
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			_, err := member(t, name).BatchV1().CronJobs(ns).Get(ctx, "tick", metav1.GetOptions{})
			return err
		})
		labtest.MustKubectl(t, kubeconfig, "", "-n", ns, "create", "job", "run", "--from=cronjob/tick")
	}
	labtest.MustKubectl(t, admin, "", "-n", ns, "create", "job", "mine", "--image=c")
	jobs := func(ctx context.Context) (names []string, err error) {
		list, err := endpoint(t).BatchV1().Jobs(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			names = append(names, as(&list.Items[i]))
		}
		return names, nil
	}
	want(t, []string{"mine@", "run.m2@m2", "run@m1"}, jobs)
	template, err := endpoint(t).BatchV1().CronJobs(ns).Get(t.Context(), "tick", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run", "run.m2"} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			job, err := endpoint(t).BatchV1().Jobs(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if o := metav1.GetControllerOf(job); o == nil || o.UID != template.UID || o.Name != "tick" {
				return fmt.Errorf("%s is owned by %+v, not by the template %s", name, o, template.UID)
			}
			pods, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/controller-uid=" + string(job.UID)})
			if err != nil || len(pods.Items) != 1 {
				return fmt.Errorf("Pods of %s: %d, %w", name, len(pods.Items), err)
			}
			if o := metav1.GetControllerOf(&pods.Items[0]); o.Name != name || o.UID != job.UID {
				return fmt.Errorf("the Pod of %s is owned by %+v", name, o)
			}
			return nil
		})
	}
	// The managed copy of "mine" runs in one member and is not shown beside it.
	labtest.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		pods, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=mine"})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("Pods of mine: %d, %w", len(pods.Items), err)
		}
		job, err := endpoint(t).BatchV1().Jobs(ns).Get(ctx, "mine", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o := metav1.GetControllerOf(&pods.Items[0]); o.Name != "mine" || o.UID != job.UID {
			return fmt.Errorf("its Pod is owned by %+v, the Job is %s", o, job.UID)
		}
		return nil
	})
	want(t, []string{"mine@", "run.m2@m2", "run@m1"}, jobs)
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "job", "run.m2")
	want(t, []string{"mine@", "run@m1"}, jobs)
}

const database = `
apiVersion: apps/v1
kind: KIND
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  SPEC
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "db:1", resources: {requests: {cpu: 10m, memory: 1Mi}}}]}
`

// The history of a StatefulSet and of a DaemonSet is the control plane's: one
// revision for all clusters, an undo puts the template back, and the Pods'
// label leads to the revision.
func TestHistory(t *testing.T) {
	t.Parallel()
	for kind, spec := range map[string]string{"StatefulSet": "serviceName: db", "DaemonSet": "minReadySeconds: 0"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
			target := strings.ToLower(kind) + "/db"
			apply(t, admin, ns, strings.NewReplacer("KIND", kind, "SPEC", spec).Replace(database))
			labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", target, "--timeout=150s")
			labtest.MustKubectl(t, admin, "", "-n", ns, "set", "image", target, "db=db:2")
			labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", target, "--timeout=150s")
			checkHistory(t, ns, target, kind, "1", "2")
			if out := labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "history", target, "--revision=1"); !strings.Contains(out, "db:1") {
				t.Errorf("revision 1: %s", out)
			}
			labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "undo", target)
			labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", target, "--timeout=150s")
			checkHistory(t, ns, target, kind, "2", "3")
			pods, err := endpoint(t).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
			if err != nil || len(pods.Items) == 0 {
				t.Fatalf("%d Pods, %v", len(pods.Items), err)
			}
			for _, pod := range pods.Items {
				name := pod.Labels["controller-revision-hash"]
				if kind == "DaemonSet" {
					name = "db-" + name
				}
				r, err := endpoint(t).AppsV1().ControllerRevisions(ns).Get(t.Context(), name, metav1.GetOptions{})
				if err != nil || pod.Spec.Containers[0].Image != "db:1" || r.Revision != 3 || as(r) != name+"@" {
					t.Errorf("%s runs %s of revision %s: %v", pod.Name, pod.Spec.Containers[0].Image, name, err)
				}
			}
		})
	}
}

// checkHistory: what kubectl prints, and that nothing of the members shows.
func checkHistory(t *testing.T, ns, target, kind string, numbers ...string) {
	t.Helper()
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		out := labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "rollout", "history", target)
		var got []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 0 && f[0] >= "0" && f[0] <= "9" {
				got = append(got, f[0])
			}
		}
		list, err := endpoint(t).AppsV1().ControllerRevisions(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if o := metav1.GetControllerOf(&list.Items[i]); as(&list.Items[i]) != list.Items[i].Name+"@" || o.Kind != kind {
				return fmt.Errorf("listed: %s of %s", as(&list.Items[i]), o.Kind)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(numbers) || len(list.Items) != len(numbers) {
			return fmt.Errorf("history %v of %d revisions, want %v", got, len(list.Items), numbers)
		}
		return nil
	})
}

const talk = `
apiVersion: batch/v1
kind: Job
metadata: {name: talk}
spec:
  ttlSecondsAfterFinished: 3600
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: c, command: [sh, -c, echo said]}]
`

// What selects by the selector of a Job finds its Pods wherever they run:
// kubectl logs, and a platform's own code. The copy is written once, and one
// that has a selector of its own keeps it.
func TestJobSelectsItsPods(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	apply(t, admin, ns, talk)
	job, err := endpoint(t).BatchV1().Jobs(ns).Get(t.Context(), "talk", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	selector := metav1.FormatLabelSelector(job.Spec.Selector)
	labtest.Eventually(t, settled, func(ctx context.Context) error {
		pods, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%s selects %d Pods: %w", selector, len(pods.Items), err)
		}
		if o := metav1.GetControllerOf(&pods.Items[0]); o == nil || o.UID != job.UID {
			return fmt.Errorf("the Pod is owned by %+v", o)
		}
		return nil
	})
	labtest.Eventually(t, settled, func(context.Context) error {
		if res := labtest.Kubectl(t, admin, "", "-n", ns, "logs", "job/talk"); res.Code != 0 {
			return fmt.Errorf("kubectl logs: %s", res.Err)
		}
		return nil
	})
	// A change of the template reaches the copy: nothing immutable is written.
	labtest.MustKubectl(t, admin, "", "-n", ns, "annotate", "job", "talk", "note=read")
	var cluster string
	labtest.Eventually(t, settled, func(ctx context.Context) error {
		for _, name := range []string{"m1", "m2"} {
			if copied, err := member(t, name).BatchV1().Jobs(ns).Get(ctx, "talk", metav1.GetOptions{}); err == nil && copied.Annotations["note"] == "read" {
				cluster = name
				return nil
			}
		}
		return fmt.Errorf("the annotation has not arrived")
	})
	// The member's own Job of that name, taken over, keeps its selector.
	labtest.MustKubectl(t, world.Member(cluster).Kubeconfig(), "", "-n", ns, "create", "job", "own", "--image=c")
	own, err := member(t, cluster).BatchV1().Jobs(ns).Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := world.System.Command(t.Context(), "adopt", "--cluster", cluster, "-n", ns, "job/own"); err != nil {
		t.Fatalf("adopt: %v\n%s", err, out)
	}
	labtest.Eventually(t, settled, func(ctx context.Context) error {
		adopted, err := member(t, cluster).BatchV1().Jobs(ns).Get(ctx, "own", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if adopted.UID != own.UID || adopted.Labels["isthmus.dev/managed"] != "true" || adopted.Spec.Selector.String() != own.Spec.Selector.String() {
			return fmt.Errorf("the adopted Job is %s with %v and the labels %v", adopted.UID, adopted.Spec.Selector, adopted.Labels)
		}
		return nil
	})
}
