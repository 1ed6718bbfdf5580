package propagation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// policyOver selects all Deployments of a namespace; spec is the rest.
func policyOver(spec string) string {
	return `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
` + spec
}

// app is a Deployment by name, with labels and a CPU request.
func app(name, labels, cpu string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, labels: {app: %[1]s%[2]s}}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1", resources: {requests: {cpu: %[3]s}}}]}
`, name, labels, cpu, replicas)
}

func get(t testing.TB, ns, object, path string) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "", "-n", ns, "get", object, "--ignore-not-found", "-o", "jsonpath="+path))
}

const (
	targetsPath = `{range .spec.clusters[*]}{.name}={.replicas} {end}`
	reasonPath  = `{.status.conditions[?(@.type=="Scheduled")].reason}`
)

// eventually waits until a field of an object is as wanted.
func eventually(t testing.TB, ns, object, path, want string) {
	t.Helper()
	labtest.Eventually(t, 40*time.Second, func(context.Context) error {
		if got := get(t, ns, object, path); got != want {
			return fmt.Errorf("%s: %q, want %q; %s", object, got, want, get(t, ns, object, "{.status.conditions[*].message}"))
		}
		return nil
	})
}

// runsIn waits until a Deployment is decided to be there, and is.
func runsIn(t testing.TB, ns, name, want string) {
	t.Helper()
	eventually(t, ns, "resourcebinding/"+name+"-deployment", targetsPath, want)
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		var there []string
		for _, m := range world.Members {
			d, err := labtest.Client(t, m).AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return err
			default:
				there = append(there, fmt.Sprintf("%s=%d", m.Name(), *d.Spec.Replicas))
			}
		}
		if got := strings.Join(there, " "); got != want {
			return fmt.Errorf("in the members %q, want %q", got, want)
		}
		return nil
	})
}

// labelCluster labels a Cluster for one test.
func labelCluster(t testing.TB, cluster, key, value string) {
	t.Helper()
	kubectl(t, "", "label", "--overwrite", "cluster", cluster, key+"="+value)
	t.Cleanup(func() { kubectl(t, "", "label", "cluster", cluster, key+"-") })
}

// The first group that fits is used, and left only when it fits no more; a
// WorkloadRebalancer brings the workload back.
func TestAffinityGroups(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	labelCluster(t, "m1", "tier-"+ns, "near")
	kubectl(t, policyOver(fmt.Sprintf(`
  placement:
    clusterAffinities:
    - {affinityName: near, labelSelector: {matchLabels: {tier-%s: near}}}
    - {affinityName: far, clusterNames: [m2]}
    replicaScheduling: {replicaSchedulingType: Divided}
`, ns)), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 2), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m1=2")
	const group = "{.status.schedulerObservingAffinityName}"
	eventually(t, ns, "resourcebinding/web-deployment", group, "near")
	kubectl(t, "", "label", "cluster", "m1", "tier-"+ns+"-")
	runsIn(t, ns, "web", "m2=2")
	eventually(t, ns, "resourcebinding/web-deployment", group, "far")
	kubectl(t, "", "label", "cluster", "m1", "tier-"+ns+"=near")
	kubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas=3")
	runsIn(t, ns, "web", "m2=3")
	kubectl(t, fmt.Sprintf(`
apiVersion: apps.karmada.io/v1alpha1
kind: WorkloadRebalancer
metadata: {name: %[1]s}
spec:
  ttlSecondsAfterFinished: 6
  workloads:
  - {apiVersion: apps/v1, kind: Deployment, namespace: %[1]s, name: web}
  - {apiVersion: apps/v1, kind: Deployment, namespace: %[1]s, name: nobody}
`, ns), "apply", "-f", "-")
	eventually(t, ns, "workloadrebalancer/"+ns, `{.status.observedWorkloads[*].result}`, "Successful Failed")
	runsIn(t, ns, "web", "m1=3")
	eventually(t, ns, "workloadrebalancer/"+ns, "{.metadata.name}", "")
}

// Aggregated takes one cluster where one suffices; what fits nowhere is not
// placed, and is as soon as it fits.
func TestAggregatedAndRoom(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver(`
  placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}
`), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 4), "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if got := get(t, ns, "resourcebinding/web-deployment", targetsPath); len(strings.Fields(got)) != 1 || !strings.HasSuffix(got, "=4") {
			return fmt.Errorf("aggregated in %q", got)
		}
		return nil
	})
	kubectl(t, app("large", "", "9999", 2), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "resourcebinding/large-deployment", reasonPath, "Unschedulable")
	if got := get(t, ns, "resourcebinding/large-deployment", targetsPath); got != "" {
		t.Errorf("what fits nowhere is placed in %s", got)
	}
	kubectl(t, "", "-n", ns, "set", "resources", "deployment/large", "--requests=cpu=10m")
	eventually(t, ns, "resourcebinding/large-deployment", reasonPath, "Success")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/large", "--timeout=150s")
}

// Spread over regions, and over a label of the clusters.
func TestSpreadConstraints(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	for cluster, region := range map[string]string{"m1": "eu", "m2": "eu", "m3": "us"} {
		kubectl(t, "", "patch", "cluster", cluster, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"region":%q}}`, region))
		labelCluster(t, cluster, "rack-"+ns, region)
	}
	kubectl(t, policyOver(`
  placement:
    spreadConstraints: [{spreadByField: region, minGroups: 2, maxGroups: 2}, {spreadByField: cluster, minGroups: 2, maxGroups: 2}]
`), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		if got := get(t, ns, "resourcebinding/web-deployment", targetsPath); got != "m1=1 m3=1" && got != "m2=1 m3=1" {
			return fmt.Errorf("in %q", got)
		}
		return nil
	})
	kubectl(t, policyOver(fmt.Sprintf(`
  placement: {clusterAffinity: {clusterNames: [m1, m2]}, spreadConstraints: [{spreadByLabel: rack-%s, minGroups: 2}]}
`, ns)), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "resourcebinding/web-deployment", reasonPath, "NotEnoughClusters")
	kubectl(t, policyOver(fmt.Sprintf(`
  placement: {clusterAffinity: {clusterNames: [m1, m2]}, spreadConstraints: [{spreadByLabel: rack-%s, maxGroups: 1}]}
`, ns)), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m1=1 m2=1")
}

// A lazy policy acts when the template changes.
func TestLazyActivation(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	lazy := func(cluster string) string {
		return policyOver("  activationPreference: Lazy\n  placement: {clusterAffinity: {clusterNames: [" + cluster + "]}}\n")
	}
	kubectl(t, lazy("m1"), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m1=1")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	before := get(t, ns, "resourcebinding/web-deployment", "{.metadata.generation}")
	kubectl(t, lazy("m2"), "-n", ns, "apply", "-f", "-")
	// Another Deployment of the policy is placed by its new words: they are known.
	kubectl(t, app("later", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "later", "m2=1")
	if got := get(t, ns, "resourcebinding/web-deployment", targetsPath+"{.metadata.generation}"); got != "m1=1 "+before {
		t.Errorf("the lazy policy moved it: %s, generation before %s", got, before)
	}
	kubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas=2")
	runsIn(t, ns, "web", "m2=2")
}

// Nothing is placed before the overrides are there that the policy asks for.
func TestDependentOverrides(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver("  dependentOverrides: [images]\n  placement: {clusterAffinity: {clusterNames: [m2]}}\n"), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "resourcebinding/web-deployment", reasonPath, "PolicyWaits")
	kubectl(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: images}
spec:
  targetCluster: {clusterNames: [m2]}
  overriders: {imageOverrider: [{component: Tag, operator: replace, value: "2"}]}
`, "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m2=1")
	d, err := labtest.Client(t, world.Member("m2")).AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || d.Spec.Template.Spec.Containers[0].Image != "registry.example.com/web:2" {
		t.Errorf("the override was not there from the start: %v %v", d.Spec.Template.Spec.Containers, err)
	}
}

// Workloads of a group apart from each other, and with each other.
func TestWorkloadAffinity(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver(`
  placement:
    spreadConstraints: [{spreadByField: cluster, maxGroups: 1}]
    workloadAffinity: {antiAffinity: {groupByLabelKey: apart}, affinity: {groupByLabelKey: together}}
`), "-n", ns, "apply", "-f", "-")
	var all strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		all.WriteString("---\n" + app(name, ", apart: shop", "10m", 1))
	}
	kubectl(t, all.String(), "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		clusters := map[string]bool{}
		for _, name := range []string{"a", "b", "c"} {
			clusters[get(t, ns, "resourcebinding/"+name+"-deployment", targetsPath)] = true
		}
		if len(clusters) != 3 || clusters[""] {
			return fmt.Errorf("apart in %v", clusters)
		}
		return nil
	})
	kubectl(t, app("d", ", apart: shop", "10m", 1), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "resourcebinding/d-deployment", reasonPath, "NoClusterFit")
	all.Reset()
	for _, name := range []string{"p", "q", "r", "s"} {
		all.WriteString("---\n" + app(name, ", together: shop", "10m", 1))
	}
	kubectl(t, all.String(), "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		clusters := map[string]bool{}
		for _, name := range []string{"p", "q", "r", "s"} {
			clusters[get(t, ns, "resourcebinding/"+name+"-deployment", targetsPath)] = true
		}
		if len(clusters) != 1 || clusters[""] {
			return fmt.Errorf("together in %v", clusters)
		}
		return nil
	})
}

// Decisions are suspended on the binding; the priority comes from the class.
func TestSchedulingSuspensionAndPriority(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver(`
  schedulePriority: {priorityClassSource: KubePriorityClass, priorityClassName: system-cluster-critical}
  placement: {clusterAffinity: {clusterNames: [m1]}}
`), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "web", "m1=1")
	eventually(t, ns, "resourcebinding/web-deployment", "{.spec.schedulePriority.priority}", "2000000000")
	kubectl(t, "", "-n", ns, "patch", "resourcebinding/web-deployment", "--type=merge", "-p", `{"spec":{"suspension":{"scheduling":true}}}`)
	eventually(t, ns, "resourcebinding/web-deployment", reasonPath, "SchedulingSuspended")
	kubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas=2")
	eventually(t, ns, "resourcebinding/web-deployment", "{.spec.replicas}", "2")
	runsIn(t, ns, "web", "m1=1")
	kubectl(t, "", "-n", ns, "patch", "resourcebinding/web-deployment", "--type=merge", "-p", `{"spec":{"suspension":{"scheduling":null}}}`)
	runsIn(t, ns, "web", "m1=2")
}

// The claim is on the template from the start, survives a replacement by
// somebody who does not know it, stays at home, and goes with the policy.
func TestClaimOnTheTemplate(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, policyOver("  placement: {clusterAffinity: {clusterNames: [m1]}}\n"), "-n", ns, "apply", "-f", "-")
	const id = `{.metadata.labels.propagationpolicy\.karmada\.io/permanent-id}`
	claim := get(t, ns, "propagationpolicy/web", id)
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "create", "-f", "-")
	if got := get(t, ns, "deployment/web", id+` {.metadata.annotations.propagationpolicy\.karmada\.io/name}`); claim == "" || got != claim+" web" {
		t.Fatalf("claim %q, on the template %q", claim, got)
	}
	runsIn(t, ns, "web", "m1=1")
	eventually(t, ns, "resourcebinding/web-deployment", id, claim)
	m1 := labtest.Client(t, world.Member("m1")).AppsV1().Deployments(ns)
	copied, err := m1.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || copied.Labels["propagationpolicy.karmada.io/permanent-id"] != "" {
		t.Errorf("the copy has the labels %v (%v)", copied.Labels, err)
	}
	kubectl(t, app("web", "", "10m", 1), "-n", ns, "replace", "-f", "-")
	if got := get(t, ns, "deployment/web", id); got != claim {
		t.Errorf("after a replacement the claim is %q", got)
	}
	time.Sleep(time.Second)
	if now, err := m1.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || now.Generation != copied.Generation || now.UID != copied.UID {
		t.Errorf("the replacement came to the member: %v", err)
	}
	kubectl(t, "", "-n", ns, "delete", "propagationpolicy/web")
	eventually(t, ns, "deployment/web", id, "")
	runsIn(t, ns, "web", "m1=1")
}

// What is protected cannot be deleted, alone or with others.
func TestDeletionProtection(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	kubectl(t, "", "-n", ns, "create", "configmap", "kept", "--from-literal=a=b")
	kubectl(t, "", "-n", ns, "label", "configmap", "kept", "resourcetemplate.karmada.io/deletion-protected=Always")
	for _, what := range [][]string{{"configmap", "kept"}, {"configmap", "-l", "resourcetemplate.karmada.io/deletion-protected"}} {
		if res := labtest.Kubectl(t, endpoint, "", append([]string{"-n", ns, "delete"}, what...)...); res.Code == 0 || !strings.Contains(res.Err, "protected") {
			t.Errorf("delete %v: exit %d, %s", what, res.Code, res.Err)
		}
	}
	kubectl(t, "", "-n", ns, "label", "configmap", "kept", "resourcetemplate.karmada.io/deletion-protected-")
	kubectl(t, "", "-n", ns, "delete", "configmap", "kept")
}

// A document inside a ConfigMap differs in one cluster.
func TestFieldOverrider(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: fields}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: app}]
  overrideRules:
  - targetCluster: {clusterNames: [m2]}
    overriders:
      fieldOverrider:
      - {fieldPath: /data/app.yaml, yaml: [{subPath: /db/host, operator: replace, value: db.m2}]}
      - {fieldPath: /data/app.json, json: [{subPath: /debug, operator: add, value: true}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {app.yaml: "db: {host: db, port: 5432}\n", app.json: '{"port": 1}'}
`, "-n", ns, "apply", "-f", "-")
	for name, want := range map[string]string{"m1": "db: {host: db, port: 5432}\n{\"port\": 1}", "m2": "db:\n  host: db.m2\n  port: 5432\n{\"debug\":true,\"port\":1}"} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			cm, err := labtest.Client(t, world.Member(name)).CoreV1().ConfigMaps(ns).Get(ctx, "app", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := cm.Data["app.yaml"] + cm.Data["app.json"]; got != want {
				return fmt.Errorf("%s: %q", name, got)
			}
			return nil
		})
	}
}

// Overriding what gives rights takes the right to escalate.
func TestOverridesOfRightsNeedEscalate(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	kubectl(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: policies, namespace: %[1]s}
rules: [{apiGroups: [policy.karmada.io], resources: [overridepolicies], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: policies, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: policies}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`, ns), "apply", "-f", "-")
	override := func(selectors string) string {
		return `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"OverridePolicy","metadata":{"name":"o"},"spec":{` + selectors +
			`"overrideRules":[{"overriders":{"plaintext":[{"path":"/rules","operator":"replace","value":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}]}}]}}`
	}
	onRoles := override(`"resourceSelectors":[{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role"}],`)
	as := func(doc string) labtest.Result {
		return labtest.Kubectl(t, endpoint, doc, "-n", ns, "--as=jane", "apply", "-f", "-")
	}
	if res := as(onRoles); res.Code == 0 || !strings.Contains(res.Err, "escalate on roles.rbac.authorization.k8s.io") {
		t.Errorf("an override of Roles: exit %d, %s", res.Code, res.Err)
	}
	// One of everything does not reach them.
	if res := as(override("")); res.Code != 0 {
		t.Fatalf("an override of everything: %s", res.Err)
	}
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		r, err := labtest.Client(t, world.Member("m1")).RbacV1().Roles(ns).Get(ctx, "policies", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(r.Rules) != 1 || len(r.Rules[0].APIGroups) != 1 || r.Rules[0].APIGroups[0] != "policy.karmada.io" {
			return fmt.Errorf("the Role became %v", r.Rules)
		}
		return nil
	})
	kubectl(t, "", "-n", ns, "delete", "overridepolicy", "o")
	kubectl(t, "", "-n", ns, "patch", "role", "policies", "--type=json", "-p",
		`[{"op":"add","path":"/rules/-","value":{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["escalate"]}}]`)
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		if res := as(onRoles); res.Code != 0 {
			return errors.New(res.Err)
		}
		return nil
	})
}

// Taints follow the conditions of a Cluster; with failover a workload leaves a
// cluster that is tainted NoExecute, without it stays, and what is new stays
// away. Not parallel: the others do without the taint.
func TestTaintsAndFailover(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, fmt.Sprintf(`
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata: {name: %[1]s}
spec:
  targetClusters: {clusterNames: [m2, m3]}
  addOnConditions: [{conditionType: Maintenance, operator: In, statusValues: ["True"]}]
  removeOnConditions: [{conditionType: Maintenance, operator: NotIn, statusValues: ["True"]}]
  taints: [{key: maintenance, effect: NoExecute}]
`, ns), "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, "", "delete", "clustertaintpolicy", ns) })
	spread := func(name, rest string) string {
		return strings.ReplaceAll(policyOver(rest+`
  placement: {replicaScheduling: {replicaSchedulingType: Divided}}
`), "kind: Deployment}", "kind: Deployment, name: "+name+"}") // one policy for each
	}
	kubectl(t, strings.Replace(spread("leaves", "  failover: {cluster: {}}"), "name: web", "name: leaves", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, strings.Replace(spread("stays", ""), "name: web", "name: stays", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("leaves", "", "10m", 6), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("stays", "", "10m", 6), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "leaves", "m1=2 m2=2 m3=2")
	runsIn(t, ns, "stays", "m1=2 m2=2 m3=2")
	// What may run nowhere else stays where it is.
	kubectl(t, strings.Replace(strings.Replace(spread("alone", "  failover: {cluster: {}}"), "name: web", "name: alone", 1),
		"placement: {", "placement: {clusterAffinity: {clusterNames: [m3]}, ", 1), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("alone", "", "10m", 2), "-n", ns, "apply", "-f", "-")
	runsIn(t, ns, "alone", "m3=2")
	afterTheMove := goesDirectly(t, ns)
	maintenance := func(status string) {
		kubectl(t, "", "patch", "cluster", "m3", "--subresource=status", "--type=json", "-p", fmt.Sprintf(
			`[{"op":"add","path":"/status/conditions/-","value":{"type":"Maintenance","status":%q,"reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`, status))
	}
	maintenance("True")
	eventually(t, ns, "cluster/m3", `{.spec.taints[?(@.key=="maintenance")].effect}`, "NoExecute")
	runsIn(t, ns, "leaves", "m1=3 m2=3")
	runsIn(t, ns, "stays", "m1=2 m2=2 m3=2")
	runsIn(t, ns, "alone", "m3=2")
	afterTheMove()
	if why := get(t, ns, "resourcebinding/alone-deployment", `{.status.conditions[?(@.type=="Scheduled")].message}`); !strings.Contains(why, "maintenance") {
		t.Errorf("nothing says why alone does not leave: %q", why)
	}
	kubectl(t, app("later", "", "10m", 4), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/later", "--timeout=150s")
	if got := get(t, ns, "resourcebinding/later-deployment", targetsPath); strings.Contains(got, "m3") {
		t.Errorf("new replicas go to the tainted cluster: %s", got)
	}
	kubectl(t, "", "patch", "cluster", "m3", "--subresource=status", "--type=json", "-p", fmt.Sprintf(
		`[{"op":"replace","path":"/status/conditions/%d/status","value":"False"}]`, conditionIndex(t, "m3", "Maintenance")))
	eventually(t, ns, "cluster/m3", `{.spec.taints}`, "[]")
	runsIn(t, ns, "leaves", "m1=3 m2=3")
}

func conditionIndex(t testing.TB, cluster, kind string) int {
	t.Helper()
	for i, c := range strings.Fields(kubectl(t, "", "get", "cluster", cluster, "-o", "jsonpath={.status.conditions[*].type}")) {
		if c == kind {
			return i
		}
	}
	t.Fatalf("no condition %s", kind)
	return -1
}
