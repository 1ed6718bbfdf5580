package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const ownDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: own}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: own}}
  template:
    metadata: {labels: {app: own}}
    spec: {containers: [{name: c, image: c}]}
`

// A Deployment that members run unmanaged: both are read in full, under the names
// that Pods would have; whatever creates one of that name at the endpoint makes
// a template and leaves the members' alone, with a warning and a condition.
func TestUnmanagedNamesakes(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	uids := map[string]string{}
	for name, replicas := range map[string]string{"m1": "1", "m2": "2"} {
		apply(t, world.Member(name).Kubeconfig(), ns, strings.ReplaceAll(ownDeployment, "REPLICAS", replicas))
		d, err := member(t, name).AppsV1().Deployments(ns).Get(t.Context(), "own", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = string(d.UID)
		labtest.MustKubectl(t, world.Member(name).Kubeconfig(), "", "-n", ns, "rollout", "status", "deployment/own", "--timeout=150s")
	}
	for name, want := range map[string]string{"own": "own m1 1/1 1 1", "own.m2": "own.m2 m2 2/2 2 2"} {
		got := strings.Join(strings.Fields(labtest.MustKubectl(t, admin, "", "-n", ns, "get", "deployment", name, "--no-headers")), " ")
		if !strings.HasPrefix(got, want) {
			t.Errorf("get %s: %s, want %s", name, got, want)
		}
	}
	got := strings.Join(strings.Fields(labtest.MustKubectl(t, admin, "", "-n", ns, "get", "deployments", "-l", "isthmus.dev/cluster in (m1,m2)")), " ")
	if !strings.HasPrefix(got, "NAME CLUSTER READY UP-TO-DATE AVAILABLE AGE own m1 1/1 1 1") || !strings.Contains(got, "own.m2 m2 2/2 2 2") {
		t.Errorf("list: %s", got)
	}
	// Writes are not routed, and say what can be done.
	for _, command := range [][]string{
		{"scale", "deployment/own", "--replicas=5"},
		{"delete", "deployment/own"},
		{"patch", "deployment/own", "-p", `{"spec":{"replicas":5}}`},
		{"set", "image", "deployment/own", "c=d"},
	} {
		res := labtest.Kubectl(t, admin, "", append([]string{"-n", ns}, command...)...)
		if res.Code != 1 || !strings.Contains(strings.ToLower(res.Err), "not found") || !strings.Contains(res.Err, "adopt --cluster m1 -n "+ns+" deployment/own") {
			t.Errorf("kubectl %s: %+v", command[0], res)
		}
	}
	if err := endpoint(t).AppsV1().Deployments(ns).Delete(t.Context(), "own", metav1.DeleteOptions{}); !isNotFound(err) || !strings.Contains(err.Error(), "adopt --cluster m1") {
		t.Errorf("delete by client-go: %v", err)
	}
	// helm looks first and creates then; kubectl create keeps what it applied.
	res := labtest.Kubectl(t, admin, strings.ReplaceAll(ownDeployment, "REPLICAS", "3"), "-n", ns, "create", "--save-config", "-f", "-")
	if res.Code != 0 || !strings.Contains(res.Err, `holds an unmanaged deployments`) {
		t.Fatalf("create --save-config: %+v", res)
	}
	template, err := endpoint(t).AppsV1().Deployments(ns).Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil || *template.Spec.Replicas != 3 || template.Labels["isthmus.dev/cluster"] != "" {
		t.Fatalf("the bare name is not the template: %v %v", template, err)
	}
	res = labtest.Kubectl(t, admin, strings.ReplaceAll(ownDeployment, "REPLICAS", "4"), "-n", ns, "apply", "-f", "-")
	if res.Code != 0 {
		t.Errorf("apply over what create --save-config made: %+v", res)
	}
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		out := labtest.MustKubectl(t, admin, "", "-n", ns, "get", "resourcebindings.work.karmada.io", "own-deployment", "-o",
			`jsonpath={.status.conditions[?(@.type=="FullyApplied")].message}`)
		if !strings.Contains(out, "m1") || !strings.Contains(out, "m2") {
			return fmt.Errorf("the binding says %q", out)
		}
		return nil
	})
	for name, uid := range uids {
		d, err := member(t, name).AppsV1().Deployments(ns).Get(t.Context(), "own", metav1.GetOptions{})
		if err != nil || string(d.UID) != uid || *d.Spec.Replicas > 2 || d.Labels["isthmus.dev/managed"] != "" {
			t.Errorf("in %s: %v, %d replicas", name, err, *d.Spec.Replicas)
		}
	}
	if _, err := endpoint(t).AppsV1().Deployments(ns).Get(t.Context(), "own.m3", metav1.GetOptions{}); !isNotFound(err) {
		t.Errorf("a name of no cluster: %v", err)
	}
}
