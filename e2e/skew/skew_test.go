// Package skew puts members of older Kubernetes versions beside one of the present
// version and does with all what users do. It runs with SKEW set (make skew),
// since an older control plane takes minutes to build.
//
//	TestMain -> m1 (v1.37.2), one for each of artifacts.OldKubernetesVersions -> the endpoint
//	tests    -> kubectl, client-go -> endpoint -> the members
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
	options := labtest.WorldOptions{Name: "skew", Members: []lab.Options{{Name: "m1"}}, Join: []string{"m1"}}
	for _, version := range artifacts.OldKubernetesVersions() {
		options.Members = append(options.Members, lab.Options{Name: nameOf(version), Kubernetes: version})
		options.Join = append(options.Join, nameOf(version))
	}
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(labtest.Main(m, &world, options))
}

// build makes the older control planes before the time of the start runs.
func build() error {
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	set, err := artifacts.Ensure(context.Background(), false, logf)
	if err != nil {
		return err
	}
	for _, version := range artifacts.OldKubernetesVersions() {
		if _, err := set.EnsureOldKubernetes(context.Background(), version, logf); err != nil {
			return err
		}
	}
	return nil
}

// nameOf is v1-34 for v1.34.4.
func nameOf(version string) string {
	return strings.ReplaceAll(version[:strings.LastIndexByte(version, '.')], ".", "-")
}

// clusters are the names of all members, by their version.
func clusters() map[string]string {
	all := map[string]string{"m1": artifacts.KubernetesVersion}
	for _, version := range artifacts.OldKubernetesVersions() {
		all[nameOf(version)] = version
	}
	return all
}

func kubectl(t testing.TB, ns, stdin string, args ...string) string {
	t.Helper()
	return labtest.MustKubectl(t, world.System.Kubeconfig(), stdin, append([]string{"-n", ns}, args...)...)
}

// The older members are followed and their versions are told.
func TestVersions(t *testing.T) {
	for name, want := range clusters() {
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

// A Deployment runs in all, is rolled out and rolled back, and its Pods are read
// and reached in each.
func TestDeployment(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, ns, "", "create", "deployment", "web", "--image=registry.example.com/web:1", "--replicas=8")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=150s")
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
		kubectl(t, ns, "", "delete", "pod", p.Name, "--timeout=150s")
		deleted(t, events, p)
	}
	for name := range clusters() {
		if counts[name] != 2 {
			t.Errorf("the Pods are divided %v", counts)
		}
	}
	kubectl(t, ns, "", "set", "image", "deployment/web", "*=registry.example.com/web:2")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=150s")
	kubectl(t, ns, "", "rollout", "undo", "deployment/web")
	kubectl(t, ns, "", "rollout", "status", "deployment/web", "--timeout=150s")
	if out := kubectl(t, ns, "", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"); strings.Count(out, "web:1") != 8 {
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
	kubectl(t, ns, "", "rollout", "status", "daemonset/agent", "--timeout=150s")
	kubectl(t, ns, "", "rollout", "status", "statefulset/store", "--timeout=150s")
	kubectl(t, ns, "", "wait", "--for=condition=Complete", "job/migrate", "--timeout=150s")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		for name := range clusters() {
			res := labtest.Kubectl(t, world.Member(name).Kubeconfig(), "", "-n", ns, "get", "daemonset/agent", "service/store", "ingress/store", "pdb/agent",
				"configmap/settings", "secret/secret", "role/reader", "networkpolicy/store", "-o", "name")
			if res.Code != 0 {
				return fmt.Errorf("in %s: %s", name, res.Err)
			}
		}
		out := kubectl(t, ns, "", "get", "resourcebindings", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="FullyApplied")].status}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			if !strings.HasSuffix(strings.TrimSpace(line), "=True") {
				return fmt.Errorf("%s", line)
			}
		}
		return nil
	})
	quiet(t, 20*time.Second, func(a labtest.Audited) bool { return a.ObjectRef.Namespace == ns })
}

const (
	// Of v1.35: v1.34 does not know the field.
	newestFields = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s.example.com}
spec: {tokenRequests: [{audience: a}], serviceAccountTokenInSecrets: true}
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: %[1]s}
spec: {resourceSelectors: [{apiVersion: storage.k8s.io/v1, kind: CSIDriver, name: %[1]s.example.com}]}
`
	// Lists with equal keys, which the API stores and server-side apply refuses.
	duplicateKeys = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: twice}
spec:
  replicas: 4
  selector: {matchLabels: {app: twice}}
  template:
    metadata: {labels: {app: twice}}
    spec:
      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.1, hostnames: [b]}]
      containers:
      - name: c
        image: twice
        env: [{name: A, value: "1"}, {name: A, value: "2"}]
        ports: [{containerPort: 80, name: one}, {containerPort: 80, name: two}]
`
)

// What a member does not know is left out there and reported; lists with equal
// keys reach all; neither is written over and over. SKEW_QUIET is the time to look.
func TestNewestFieldsAndDuplicateKeys(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	driver := fmt.Sprintf(newestFields, ns)
	kubectl(t, ns, driver, "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, world.System.Kubeconfig(), driver, "delete", "-f", "-", "--wait=false") })
	kubectl(t, ns, duplicateKeys, "create", "-f", "-")
	kubectl(t, ns, "", "rollout", "status", "deployment/twice", "--timeout=150s")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		for name, version := range clusters() {
			got := labtest.Kubectl(t, world.Member(name).Kubeconfig(), "", "get", "csidriver", ns+".example.com", "-o", "jsonpath={.spec.tokenRequests[0].audience} {.spec.serviceAccountTokenInSecrets}")
			want := "a true"
			if strings.HasPrefix(version, "v1.34.") {
				want = "a "
			}
			if got.Out != want {
				return fmt.Errorf("%s holds %q%s", name, got.Out, got.Err)
			}
		}
		out := kubectl(t, ns, "", "get", "clusterresourcebindings", "-o", `jsonpath={range .items[*]}{.metadata.name}: {.status.conditions[?(@.type=="FieldsDropped")].message}{"\n"}{end}`)
		if want := ns + ".example.com-csidriver: v1-34: spec.preventPodSchedulingIfMissing, spec.serviceAccountTokenInSecrets;"; !strings.Contains(out, want) {
			return fmt.Errorf("the bindings say %s", out)
		}
		return nil
	})
	look := 20 * time.Second
	if value := os.Getenv("SKEW_QUIET"); value != "" {
		var err error
		if look, err = time.ParseDuration(value); err != nil {
			t.Fatalf("SKEW_QUIET: %v", err)
		}
	}
	quiet(t, look, func(a labtest.Audited) bool {
		return a.ObjectRef.Namespace == ns || a.ObjectRef.Name == ns+".example.com"
	})
}

// quiet requires that nothing is written over and over while nothing changes.
func quiet(t *testing.T, look time.Duration, concerned func(labtest.Audited) bool) {
	t.Helper()
	logs := map[string]labtest.AuditLog{}
	for name := range clusters() {
		logs[name] = labtest.MemberAudit(t, world.Member(name))
	}
	time.Sleep(look)
	for name, log := range logs {
		writes := map[string]int{}
		for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
			if concerned(a) {
				writes[a.ObjectRef.Resource+"/"+a.ObjectRef.Name]++
			}
		}
		for object, n := range writes {
			if n > 2 {
				t.Errorf("%s: %s was written %d times in %s while nothing changed", name, object, n, look)
			}
		}
	}
}
