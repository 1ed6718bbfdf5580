// Package skew puts a member of an older Kubernetes beside one of the present
// version and does with both what users do. It runs with SKEW set (make skew),
// since the older control plane takes minutes to build.
//
//	TestMain -> m1 (v1.37.2), old (artifacts.OldKubernetesVersion) -> the endpoint
//	tests    -> kubectl, client-go -> endpoint -> m1, old
package skew

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	if os.Getenv("SKEW") == "" {
		fmt.Println("skipped: builds an older Kubernetes; make skew runs it")
		return
	}
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name:    "skew",
		Members: []lab.Options{{Name: "m1"}, {Name: "old", Old: true}},
		Join:    []string{"m1", "old"},
	}))
}

func kubectl(t testing.TB, ns, stdin string, args ...string) string {
	t.Helper()
	return labtest.MustKubectl(t, world.System.Kubeconfig(), stdin, append([]string{"-n", ns}, args...)...)
}

// The older member is followed and its version is told.
func TestVersions(t *testing.T) {
	for name, want := range map[string]string{"m1": artifacts.KubernetesVersion, "old": artifacts.OldKubernetesVersion} {
		labtest.Eventually(t, time.Minute, func(context.Context) error {
			out := kubectl(t, "default", "", "get", "cluster", name, "-o",
				`jsonpath={.status.kubernetesVersion} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="CacheSynced")].status}`)
			if out != want+" True True" {
				return fmt.Errorf("%s says %q", name, out)
			}
			return nil
		})
	}
}

// A Deployment runs in both, is rolled out and rolled back, and its Pods are read
// and reached in both.
func TestDeployment(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, ns, "", "create", "deployment", "web", "--image=registry.example.com/web:1", "--replicas=6")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=50s")
	client := labtest.Client(t, world.System)
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	counts := map[string]int{}
	for _, p := range list.Items {
		cluster := p.Labels["isthmus.dev/cluster"]
		if counts[cluster]++; counts[cluster] > 1 {
			continue
		}
		for _, connect := range []string{"true", "false"} {
			t.Setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", connect)
			if out := kubectl(t, ns, "", "exec", p.Name, "--", "sh", "-c", "echo $CLUSTER"); strings.TrimSpace(out) != cluster {
				t.Errorf("exec in %s, a Pod of %s, says %q", p.Name, cluster, out)
			}
		}
		if out := kubectl(t, ns, "", "logs", p.Name, "--tail=1"); out == "" {
			t.Errorf("no logs of %s in %s", p.Name, cluster)
		}
		kubectl(t, ns, "", "annotate", "pod", p.Name, "seen=yes")
		kubectl(t, ns, "", "label", "pod", p.Name, "seen=yes")
		kubectl(t, ns, "", "debug", p.Name, "--image=registry.example.com/debug:1", "-c", "debugger", "--", "true")
		kubectl(t, ns, "", "delete", "pod", p.Name, "--timeout=30s")
		deleted(t, events, p)
	}
	if counts["m1"] != 3 || counts["old"] != 3 {
		t.Errorf("the Pods are divided %v", counts)
	}
	kubectl(t, ns, "", "set", "image", "deployment/web", "*=registry.example.com/web:2")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=50s")
	kubectl(t, ns, "", "rollout", "undo", "deployment/web")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=50s")
	if out := kubectl(t, ns, "", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"); strings.Count(out, "web:1") != 6 {
		t.Errorf("after the rollback: %s", out)
	}
}

// deleted waits for the deletion of a Pod in a watch that has seen its changes.
func deleted(t *testing.T, events watch.Interface, pod corev1.Pod) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case e, open := <-events.ResultChan():
			if !open {
				t.Fatal("the watch has ended")
			}
			if p, ok := e.Object.(*corev1.Pod); ok && p.UID == pod.UID && e.Type == watch.Deleted {
				if p.Labels["seen"] != "yes" {
					t.Errorf("the watch saw %s go without its label", p.Name)
				}
				return
			}
		case <-limit:
			t.Fatalf("the watch does not see %s go", pod.Name)
		}
	}
}

const manyKinds = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template: {metadata: {labels: {app: store}}, spec: {containers: [{name: c, image: store}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: agent}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: migrate}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: report}]}}}}}
---
apiVersion: v1
kind: Service
metadata: {name: store}
spec: {selector: {app: store}, trafficDistribution: PreferClose, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: store}
spec: {rules: [{host: store.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: store, port: {number: 80}}}}]}}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: agent}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: agent}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {a: b}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: store}
spec: {podSelector: {}}
`

// Every kind is applied to each member in a form that it serves, and stays: no
// correction follows another.
func TestKinds(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, ns, manyKinds, "apply", "-f", "-")
	kubectl(t, ns, "", "rollout", "status", "daemonset/agent", "--timeout=50s")
	kubectl(t, ns, "", "rollout", "status", "statefulset/store", "--timeout=50s")
	kubectl(t, ns, "", "wait", "--for=condition=Complete", "job/migrate", "--timeout=50s")
	old := world.Member("old")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, old.Kubeconfig(), "", "-n", ns, "get", "daemonset/agent", "service/store", "ingress/store", "pdb/agent",
			"configmap/settings", "secret/secret", "role/reader", "networkpolicy/store", "-o", "name")
		if res.Code != 0 {
			return fmt.Errorf("in the older member: %s", res.Err)
		}
		out := kubectl(t, ns, "", "get", "resourcebindings", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="FullyApplied")].status}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if !strings.HasSuffix(strings.TrimSpace(line), "=True") {
				return fmt.Errorf("%s", line)
			}
		}
		return nil
	})
	audit := labtest.MemberAudit(t, old)
	time.Sleep(20 * time.Second)
	writes := map[string]int{}
	for _, a := range labtest.WritesBy(labtest.ApplyUser, audit.Read(t)) {
		if a.ObjectRef.Namespace == ns {
			writes[a.ObjectRef.Resource+"/"+a.ObjectRef.Name]++
		}
	}
	for object, n := range writes {
		if n > 2 {
			t.Errorf("%s was written %d times while nothing changed", object, n)
		}
	}
}
