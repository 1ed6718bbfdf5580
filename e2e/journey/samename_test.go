package journey

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const database = `
apiVersion: v1
kind: Namespace
metadata: {name: NAME}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: NAME}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "registry.example.com/db:1"}]}
`

// One StatefulSet, made by hand in two members: db-0 and db-0.m2.
func TestSameNameInTwoClusters(t *testing.T) {
	t.Parallel()
	ns := labtest.NamespaceName(t)
	endpoint := world.System.Kubeconfig()
	labtest.MustKubectl(t, endpoint, "", "create", "namespace", ns)
	members := []*lab.Member{world.m1, world.m2}
	for _, member := range members {
		labtest.MustKubectl(t, member.Kubeconfig(), strings.ReplaceAll(database, "NAME", ns), "apply", "-f", "-")
	}
	t.Cleanup(func() { removeNamespace(t, ns, endpoint, world.m1.Kubeconfig(), world.m2.Kubeconfig()) })
	for _, pod := range []string{"db-0", "db-0.m2"} {
		waitServed(t, ns, pod)
	}
	d := &twins{ns: ns, endpoint: endpoint}
	t.Run("served", d.testServed)
	t.Run("informer", d.testInformer)
	t.Run("logs", d.testLogs)
	t.Run("exec", d.testExec)
	t.Run("describe", d.testDescribe)
	t.Run("delete the second", d.testDeleteSecond)
	t.Run("reserved name", d.testReserved)
}

type twins struct{ ns, endpoint string }

func (d *twins) kubectl(t *testing.T, args ...string) labtest.Result {
	t.Helper()
	return labtest.Kubectl(t, d.endpoint, "", append([]string{"-n", d.ns}, args...)...)
}

func removeNamespace(t *testing.T, ns string, kubeconfigs ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, kubeconfig := range kubeconfigs {
		labtest.Run(ctx, t, kubeconfig, "", world.plain.Artifacts().Path("kubectl"), "delete", "namespace", ns, "--wait=false", "--ignore-not-found")
	}
}

func waitServed(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	client := labtest.Client(t, world.System)
	var pod *corev1.Pod
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		var err error
		if pod, err = client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !lives(pod) {
			return fmt.Errorf("Pod %s is %s, deleted %v", name, pod.Status.Phase, pod.DeletionTimestamp)
		}
		return nil
	})
	return pod
}

func (d *twins) testServed(t *testing.T) {
	for name, want := range map[string]struct {
		member   *lab.Member
		original string
		set      string
		node     string
	}{
		"db-0":    {world.m1, "", "db", ""},
		"db-0.m2": {world.m2, "db-0", "db", ".m2"},
	} {
		pod := waitServed(t, d.ns, name)
		held, err := labtest.Client(t, want.member).CoreV1().Pods(d.ns).Get(t.Context(), "db-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.UID != held.UID || pod.Labels["isthmus.dev/cluster"] != want.member.Name() || pod.Annotations["isthmus.dev/original-name"] != want.original {
			t.Errorf("%s: uid %s, labels %v, annotations %v; held uid %s", name, pod.UID, pod.Labels, pod.Annotations, held.UID)
		}
		if pod.Spec.NodeName != held.Spec.NodeName+want.node {
			t.Errorf("%s: on node %s, held on %s", name, pod.Spec.NodeName, held.Spec.NodeName)
		}
		if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].Kind != "StatefulSet" {
			t.Fatalf("%s: owners %v", name, pod.OwnerReferences)
		}
		if owner := pod.OwnerReferences[0]; owner.UID != held.OwnerReferences[0].UID {
			t.Errorf("%s: the owner is served with UID %s, held with %s", name, owner.UID, held.OwnerReferences[0].UID)
		}
		if _, err := labtest.Client(t, world.System).CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: its node: %v", name, err)
		}
		out := labtest.MustKubectl(t, d.endpoint, "", "-n", d.ns, "get", "pods", "--field-selector=spec.nodeName="+pod.Spec.NodeName, "-o", "name")
		if out != "pod/"+name+"\n" {
			t.Errorf("Pods on %s: %q", pod.Spec.NodeName, out)
		}
	}
}

func (d *twins) testInformer(t *testing.T) {
	client := labtest.Client(t, world.System)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(d.ns))
	informer := factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	keys := informer.GetStore().ListKeys()
	slices.Sort(keys)
	if want := []string{d.ns + "/db-0", d.ns + "/db-0.m2"}; !slices.Equal(keys, want) {
		t.Errorf("store %v, want %v", keys, want)
	}
}

func (d *twins) testLogs(t *testing.T) {
	for pod, cluster := range map[string]string{"db-0": "m1", "db-0.m2": "m2"} {
		if res := d.kubectl(t, "logs", pod); res.Code != 0 || !strings.Contains(res.Out, "in cluster "+cluster) {
			t.Errorf("logs %s: %+v", pod, res)
		}
	}
}

func (d *twins) testExec(t *testing.T) {
	for pod, cluster := range map[string]string{"db-0": "m1", "db-0.m2": "m2"} {
		res := d.kubectl(t, "exec", pod, "--", "sh", "-c", "echo $CLUSTER; exit 3")
		if res.Code != 3 || strings.TrimSpace(res.Out) != cluster {
			t.Errorf("exec %s: %+v", pod, res)
		}
	}
}

func (d *twins) testDescribe(t *testing.T) {
	labtest.Eventually(t, 20*time.Second, func(context.Context) error {
		res := d.kubectl(t, "describe", "pod", "db-0.m2")
		if res.Code != 0 || !strings.Contains(res.Out, "Scheduled") || !strings.Contains(res.Out, ".m2") {
			return fmt.Errorf("describe: %+v", res)
		}
		return nil
	})
	res := d.kubectl(t, "get", "events", "--field-selector=involvedObject.name=db-0.m2", "-o", "jsonpath={.items[*].metadata.labels.isthmus\\.dev/cluster}")
	if got := slices.Compact(strings.Fields(res.Out)); !slices.Equal(got, []string{"m2"}) {
		t.Errorf("Events of db-0.m2 are from %v: %+v", got, res)
	}
}

func (d *twins) testDeleteSecond(t *testing.T) {
	first, second := waitServed(t, d.ns, "db-0"), waitServed(t, d.ns, "db-0.m2")
	if res := d.kubectl(t, "delete", "pod", "db-0.m2", "--timeout=150s"); res.Code != 0 {
		t.Fatalf("%+v", res)
	}
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		pod, err := labtest.Client(t, world.m2).CoreV1().Pods(d.ns).Get(ctx, "db-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.UID == second.UID {
			return fmt.Errorf("m2's Pod %s is still there", pod.UID)
		}
		return nil
	})
	if again := waitServed(t, d.ns, "db-0.m2"); again.UID == second.UID {
		t.Errorf("db-0.m2 is still served with UID %s", again.UID)
	}
	if now := waitServed(t, d.ns, "db-0"); now.UID != first.UID {
		t.Errorf("m1's Pod was replaced: %s, before %s", now.UID, first.UID)
	}
}

// While the bare name is reserved to m1, it never leads to m2's Pod.
func (d *twins) testReserved(t *testing.T) {
	second := waitServed(t, d.ns, "db-0.m2")
	labtest.MustKubectl(t, world.m1.Kubeconfig(), "", "-n", d.ns, "scale", "statefulset/db", "--replicas=0")
	pods := labtest.Client(t, world.System).CoreV1().Pods(d.ns)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "db-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && pod.UID == second.UID {
			t.Fatal("the bare name went to m2's Pod at once")
		}
		return fmt.Errorf("get db-0: %w", err)
	})
	if err := pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a repeated delete: %v, want NotFound", err)
	}
	if now := waitServed(t, d.ns, "db-0.m2"); now.UID != second.UID {
		t.Errorf("m2's Pod was replaced: %s, before %s", now.UID, second.UID)
	}
}

// Nodes of equal names: each is known by the name that it is served with.
func TestSameNodeNames(t *testing.T) {
	endpoint := world.System.Kubeconfig()
	names := strings.Fields(labtest.MustKubectl(t, endpoint, "", "get", "nodes", "-o", "name"))
	for _, want := range []string{"node/fake-0", "node/fake-0.m2"} {
		if !slices.Contains(names, want) {
			t.Fatalf("nodes %v, without %s", names, want)
		}
	}
	ns := labtest.NamespaceName(t)
	labtest.MustKubectl(t, endpoint, "", "create", "namespace", ns)
	for _, member := range []*lab.Member{world.m1, world.m2} {
		labtest.MustKubectl(t, member.Kubeconfig(), strings.ReplaceAll(database, "NAME", ns), "apply", "-f", "-")
	}
	t.Cleanup(func() { removeNamespace(t, ns, endpoint, world.m1.Kubeconfig(), world.m2.Kubeconfig()) })
	first, second := waitServed(t, ns, "db-0"), waitServed(t, ns, "db-0.m2")
	target := second.Spec.NodeName
	if !strings.HasSuffix(target, ".m2") {
		t.Fatalf("db-0.m2 is on %s", target)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		labtest.Run(ctx, t, world.m2.Kubeconfig(), "", world.plain.Artifacts().Path("kubectl"), "uncordon", strings.TrimSuffix(target, ".m2"))
	})
	labtest.MustKubectl(t, endpoint, "", "cordon", target)
	unschedulable := func(member *lab.Member) bool {
		node, err := labtest.Client(t, member).CoreV1().Nodes().Get(t.Context(), strings.TrimSuffix(target, ".m2"), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node.Spec.Unschedulable
	}
	if !unschedulable(world.m2) || unschedulable(world.m1) {
		t.Fatalf("after cordon %s: m1's is unschedulable %v, m2's %v", target, unschedulable(world.m1), unschedulable(world.m2))
	}
	labtest.MustKubectl(t, endpoint, "", "drain", target, "--ignore-daemonsets", "--pod-selector=app=db", "--timeout=150s")
	if again := waitServed(t, ns, "db-0.m2"); again.UID == second.UID || again.Spec.NodeName == target {
		t.Errorf("after the drain db-0.m2 is on %s with UID %s", again.Spec.NodeName, again.UID)
	}
	if now := waitServed(t, ns, "db-0"); now.UID != first.UID {
		t.Error("the drain of m2's node replaced m1's Pod")
	}
	labtest.MustKubectl(t, endpoint, "", "uncordon", target)
	if unschedulable(world.m2) {
		t.Errorf("%s is still cordoned", target)
	}
}

// The member with metrics tells what its Nodes and Pods use, under the names as served.
func TestTop(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	pinned := `{"metadata":{"labels":{"isthmus.dev/cluster":"m1"},"annotations":{"kwok.x-k8s.io/usage-cpu":"40m"}}}`
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "run", "busy", "--image=registry.example.com/web:1", "--overrides="+pinned)
	pod := waitServed(t, ns, "busy")
	if got := pod.Labels["isthmus.dev/cluster"]; got != "m1" {
		t.Fatalf("the Pod is in %s", got)
	}
	labtest.Eventually(t, 90*time.Second, func(context.Context) error {
		if res := labtest.Kubectl(t, endpoint, "", "-n", ns, "top", "pod", "busy", "--no-headers"); res.Code != 0 || !strings.HasPrefix(res.Out, "busy ") {
			return fmt.Errorf("top pod: %+v", res)
		}
		if res := labtest.Kubectl(t, endpoint, "", "top", "node", pod.Spec.NodeName, "--no-headers"); res.Code != 0 || !strings.HasPrefix(res.Out, pod.Spec.NodeName+" ") {
			return fmt.Errorf("top node: %+v", res)
		}
		if res := labtest.Kubectl(t, endpoint, "", "-n", ns, "top", "pod", "-l", "isthmus.dev/cluster=m1", "--no-headers"); res.Code != 0 {
			return fmt.Errorf("top pod by cluster: %+v", res)
		}
		res := labtest.Kubectl(t, endpoint, "", "-n", ns, "top", "pods", "--no-headers")
		if want := `Warning: cluster "m2" does not serve metrics.k8s.io`; res.Code != 0 || !strings.HasPrefix(res.Out, "busy ") || !strings.Contains(res.Err, want) {
			return fmt.Errorf("top pods does not say what it lacks: %+v", res)
		}
		return nil
	})
}
