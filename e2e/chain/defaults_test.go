package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// sample is one of each kind that the default policies speak of.
const sample = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lonely}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {a: b}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: unused}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      serviceAccountName: robot
      containers: [{name: web, image: "registry.example.com/web:1", envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: password}}]}]
      volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  parallelism: 2
  completions: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: web, image: "registry.example.com/web:1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: web, image: "registry.example.com/web:1"}]}}}}
`

var (
	whole      = map[string]string{"statefulsets": "db", "jobs": "once", "cronjobs": "nightly"}
	everywhere = map[string]string{"daemonsets": "agent", "roles": "reader"}
	resources  = map[string]schema.GroupVersionResource{
		"statefulsets": {Group: "apps", Version: "v1", Resource: "statefulsets"}, "jobs": {Group: "batch", Version: "v1", Resource: "jobs"},
		"cronjobs": {Group: "batch", Version: "v1", Resource: "cronjobs"}, "daemonsets": {Group: "apps", Version: "v1", Resource: "daemonsets"},
		"roles":      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		"configmaps": {Version: "v1", Resource: "configmaps"}, "secrets": {Version: "v1", Resource: "secrets"},
		"serviceaccounts": {Version: "v1", Resource: "serviceaccounts"}, "persistentvolumeclaims": {Version: "v1", Resource: "persistentvolumeclaims"},
	}
)

// holders are the members that hold an object.
func holders(ctx context.Context, resource, ns, name string) ([]string, error) {
	var out []string
	for i, m := range world.Members {
		config, err := m.RESTConfig()
		if err != nil {
			return nil, err
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		_, err = client.Resource(resources[resource]).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			out = append(out, fmt.Sprintf("m%d", i+1))
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return out, nil
}

// With no policy of the user's, workloads that must not be doubled are whole in
// one cluster with what they need, and the rest is everywhere.
func TestDefaultPolicies(t *testing.T) {
	ns := namespace(t)
	labtest.MustKubectl(t, world.System.Kubeconfig(), sample, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 45*time.Second, func(ctx context.Context) error {
		var errs []error
		want := func(resource, name string, n int) []string {
			at, err := holders(ctx, resource, ns, name)
			if err != nil || len(at) != n {
				errs = append(errs, fmt.Errorf("%s %s is in %v, want %d clusters: %w", resource, name, at, n, err))
			}
			return at
		}
		for resource, name := range whole {
			want(resource, name, 1)
		}
		for resource, name := range everywhere {
			want(resource, name, 2)
		}
		for _, name := range []string{"settings", "lonely"} {
			want("configmaps", name, 2)
		}
		want("secrets", "password", 2)
		want("serviceaccounts", "robot", 2)
		want("persistentvolumeclaims", "unused", 0)
		disk, db := want("persistentvolumeclaims", "disk", 1), want("statefulsets", "db", 1)
		if len(errs) == 0 && disk[0] != db[0] {
			errs = append(errs, fmt.Errorf("the claim is in %s, its StatefulSet in %s", disk[0], db[0]))
		}
		return errors.Join(errs...)
	})
	// A bare Pod is one Pod.
	running(t, ns, pod("bare"))
	held := 0
	for _, m := range world.Members {
		if _, err := labtest.Client(t, m).CoreV1().Pods(ns).Get(t.Context(), "bare", metav1.GetOptions{}); err == nil {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d members hold the bare Pod", held)
	}
}

// What a policy with dependencies selects takes its ConfigMap along, and only
// there, when the platform has replaced the default for configuration.
func TestDefaultsAreReplaced(t *testing.T) {
	admin := world.System.Kubeconfig()
	ns := namespace(t)
	labtest.MustKubectl(t, admin, strings.ReplaceAll(narrow, "NS", ns), "apply", "-f", "-")
	labtest.MustKubectl(t, admin, sample, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 45*time.Second, func(ctx context.Context) error {
		var errs []error
		for resource, names := range map[string][]string{
			"statefulsets": {"db"}, "configmaps": {"settings"}, "secrets": {"password"}, "serviceaccounts": {"robot"}, "persistentvolumeclaims": {"disk"},
		} {
			for _, name := range names {
				at, err := holders(ctx, resource, ns, name)
				if err != nil || len(at) != 1 || at[0] != "m2" {
					errs = append(errs, fmt.Errorf("%s %s is in %v, want m2: %w", resource, name, at, err))
				}
			}
		}
		return errors.Join(errs...)
	})
}

// narrow sends all of a namespace to m2.
const narrow = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: narrow, namespace: NS}
spec:
  propagateDeps: true
  resourceSelectors:
  - {apiVersion: apps/v1, kind: StatefulSet}
  - {apiVersion: v1, kind: ConfigMap}
  - {apiVersion: v1, kind: Secret}
  - {apiVersion: v1, kind: ServiceAccount}
  placement: {clusterAffinity: {clusterNames: [m2]}}
`

// A default policy that an operator has removed stays removed after a restart,
// and one that was edited stays edited.
func TestRemovedDefaultsStayRemoved(t *testing.T) {
	admin := world.System.Kubeconfig()
	const removed, edited = "isthmus-default-whole", "isthmus-default-divided"
	saved := labtest.MustKubectl(t, admin, "", "get", "clusterpropagationpolicy", removed, "-o", "yaml")
	labtest.MustKubectl(t, admin, "", "delete", "clusterpropagationpolicy", removed)
	labtest.MustKubectl(t, admin, "", "annotate", "clusterpropagationpolicy", edited, "example.com/edited=yes")
	defer func() {
		labtest.MustKubectl(t, admin, strings.ReplaceAll(saved, "resourceVersion:", "# "), "create", "-f", "-")
		labtest.MustKubectl(t, admin, "", "annotate", "clusterpropagationpolicy", edited, "example.com/edited-")
	}()
	if err := world.System.StopProcess("multicluster-apiserver", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := limited(time.Minute)
	defer cancel()
	if err := world.System.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, admin, "", "get", "clusters", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		if res.Out != "True True" {
			return fmt.Errorf("clusters: %q %s", res.Out, res.Err)
		}
		return nil
	})
	if res := labtest.Kubectl(t, admin, "", "get", "clusterpropagationpolicy", removed); res.Code == 0 || !strings.Contains(res.Err, "NotFound") {
		t.Errorf("the removed policy: %+v", res)
	}
	if out := labtest.MustKubectl(t, admin, "", "get", "clusterpropagationpolicy", edited, "-o", "yaml"); !strings.Contains(out, "example.com/edited") {
		t.Error("the edit of a policy is lost")
	}
}
