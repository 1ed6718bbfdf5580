package adoption

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

func manifest(kind, name string, replicas int) string {
	scale := fmt.Sprintf("\n  replicas: %d", replicas)
	extra := ""
	switch kind {
	case "DaemonSet":
		scale = ""
	case "StatefulSet":
		extra = fmt.Sprintf("\n  serviceName: %s", name)
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: %s, labels: {app: %s, dropped: "later"}, annotations: {note: text, dropped.example.com/a: "later"}}
spec:%s%s
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      containers:
      - {name: web, image: "registry.example.com/web:1", env: [{name: A, value: "1"}, {name: B, value: "2"}], ports: [{containerPort: 80}]}
`, kind, name, name, scale, extra, name, name)
}

// make creates one workload by a randomly chosen way of working.
func makeWorkload(t *testing.T, rng *rand.Rand, m *lab.Member, ns, name string) {
	t.Helper()
	kubectl := func(stdin string, args ...string) {
		labtest.MustKubectl(t, m.Kubeconfig(), stdin, append([]string{"-n", ns}, args...)...)
	}
	kind := []string{"Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet"}[rng.IntN(5)]
	body := manifest(kind, name, 1+rng.IntN(2))
	object := strings.ToLower(kind) + "/" + name
	way := rng.IntN(5)
	t.Logf("%s: %s, way %d", name, kind, way)
	switch way {
	case 0:
		kubectl(body, "apply", "-f", "-")
	case 1:
		kubectl(body, "apply", "--server-side", "--field-manager=team-a", "-f", "-")
	case 2:
		kubectl(body, "create", "-f", "-")
		if kind != "DaemonSet" {
			kubectl("", "scale", object, "--replicas=2")
		}
		kubectl("", "set", "image", object, "web=registry.example.com/web:2")
		kubectl("", "label", object, "later=x")
	case 3:
		kubectl(body, "apply", "-f", "-")
		if kind == "Deployment" {
			kubectl("", "autoscale", object, "--min=3", "--max=5", "--cpu=50%")
		}
	case 4:
		kubectl(body, "create", "-f", "-", "--field-manager=tool-"+name)
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"C","value":"3"}]}]}}}}`
		kubectl("", "patch", object, "-p", patch, "--field-manager=operator")
	}
}

// makeOthers creates one object of every other kind.
func makeOthers(t *testing.T, m *lab.Member, ns string) {
	t.Helper()
	labtest.MustKubectl(t, m.Kubeconfig(), others, "-n", ns, "apply", "-f", "-")
}

const others = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: x, dropped: "later"}}
data: {a: "1", dropped: "later"}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {password: x}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: x}, ports: [{port: 80, name: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {ttlSecondsAfterFinished: 3600, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example.com/job:1"}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example.com/job:1"}]}}}}}
`

// injecting adds a sidecar and a label to what is labelled inject=yes, as a mesh
// does.
const injecting = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: inject-sidecar}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    objectSelector: {matchLabels: {inject: "yes"}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  matchConditions: [{name: once, expression: "!object.spec.template.spec.containers.exists(c, c.name == 'sidecar')"}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "sidecar", image: "registry.example.com/mesh:1"}},
         JSONPatch{op: "add", path: "/spec/template/metadata/labels/mesh", value: "on"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: inject-sidecar}
spec: {policyName: inject-sidecar}
`

// inject lets the member change what is created there, and creates one workload
// that it changes.
func inject(t *testing.T, m *lab.Member, ns string) {
	t.Helper()
	labtest.MustKubectl(t, m.Kubeconfig(), injecting, "apply", "-f", "-")
	t.Cleanup(func() {
		labtest.Kubectl(t, m.Kubeconfig(), "", "delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "inject-sidecar")
	})
	body := strings.Replace(manifest("Deployment", "meshed", 2), `dropped: "later"}, ann`, `dropped: "later", inject: "yes"}, ann`, 1)
	client := dynamicOf(t, m).Resource(deployments).Namespace(ns)
	for range 30 {
		labtest.MustKubectl(t, m.Kubeconfig(), body, "-n", ns, "apply", "-f", "-")
		u, err := client.Get(t.Context(), "meshed", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if containers := fmt.Sprint(u.Object["spec"]); strings.Contains(containers, "sidecar") {
			return
		}
		// The policy is not in force yet.
		labtest.MustKubectl(t, m.Kubeconfig(), "", "-n", ns, "delete", "deployment", "meshed", "--wait")
	}
	t.Fatal("the member's admission injects nothing")
}

// dropFrom takes a key out of a template.
func dropFrom(t *testing.T, ns, resource, patch string) {
	t.Helper()
	kind, name, _ := strings.Cut(resource, "/")
	for _, gvr := range adoptable {
		if gvr.Resource != kind {
			continue
		}
		_, err := dynamicOf(t, world.System).Resource(gvr).Namespace(ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
