package outage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A cluster is its kube-system's UID, not its name or address.
func TestIdentity(t *testing.T) {
	joinM3(t)
	awaitLive(t, "m3")
	t.Run("two names", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), within(time.Minute))
		defer cancel()
		out, err := world.System.Command(ctx, "join", "m3b", "--member-kubeconfig", world.m3.Kubeconfig())
		if err == nil || !strings.Contains(err.Error(), "unjoin m3") {
			t.Errorf("m3 joined as m3b too: %v %s; want a refusal that names m3", err, out)
		}
		if _, err := clusterObjects(t).Get(t.Context(), "m3b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the refused Cluster m3b: %v, want none", err)
		}
	})
	t.Run("a name in use", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), within(time.Minute))
		defer cancel()
		out, err := world.System.Command(ctx, "join", "m3", "--member-kubeconfig", world.m1.Kubeconfig())
		if err == nil {
			t.Errorf("m1 joined as m3: %s", out)
		}
	})
	t.Run("another cluster behind the name", otherClusterIsNotUsed)
	t.Run("another cluster is confirmed", otherClusterReplacesObjects)
}

// otherClusterIsNotUsed leads the name m3 to m1, with credentials that m1 takes.
func otherClusterIsNotUsed(t *testing.T) {
	ns := memberNamespace(t, "identity", world.m1, world.m3)
	runPod(t, world.m1, ns, "of-m1")
	runPod(t, world.m3, ns, "of-m3")
	served(t, 20*time.Second, ns, "of-m3", "m3")
	audit := labtest.MemberAudit(t, world.m1)
	restore := leadM3(t, world.m1)
	awaitCondition(t, time.Minute, "m3", "Ready", func(c condition) bool { return c.status == "False" && c.reason == "IdentityChanged" })

	list := mustAsk(t, labtest.Config(t, world.System), "/api/v1/namespaces/"+ns+"/pods?labelSelector="+clusterLabel+"%3Dm3")
	if _, items := versions(t, list.body); items["of-m3"] == 0 || len(items) != 1 {
		t.Errorf("as of m3 are served %v, want the last known of-m3", items)
	}
	pods := labtest.Client(t, world.System).CoreV1().Pods(ns)
	if err := pods.Delete(t.Context(), "of-m3", metav1.DeleteOptions{}); err == nil {
		t.Error("a delete of a Pod of m3 succeeds while another cluster is behind the name")
	}
	at := metav1.ObjectMeta{Namespace: ns, Name: "stray", Labels: map[string]string{clusterLabel: "m3"}}
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: at, Spec: barePod(ns, "stray").Spec}, metav1.CreateOptions{}); err == nil {
		t.Error("a Pod is created in m3 while another cluster is behind the name")
	}
	for _, a := range labtest.WritesBy("admin", audit.Read(t)) {
		if !strings.Contains(a.UserAgent, "outage.test") && !touchesOursOnly(a) {
			t.Errorf("written to the wrong cluster: %s %s", a.Verb, a.RequestURI)
		}
	}
	restore()
	awaitLive(t, "m3")
	served(t, 10*time.Second, ns, "of-m3", "m3")
}

// leadM3 leads the name m3 to another cluster, with credentials that it takes,
// until restore is called or the test ends.
func leadM3(t testing.TB, to *lab.Member) (restore func()) {
	t.Helper()
	saved := map[string]*corev1.Secret{"m3": credentials(t, "m3"), "m3-apply": credentials(t, "m3-apply")}
	cluster, err := clusterObjects(t).Get(t.Context(), "m3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := nestedString(cluster.Object, "spec", "apiEndpoint")
	config := labtest.Config(t, to)
	stolen := map[string][]byte{"tls.crt": config.CertData, "tls.key": config.KeyData, "caBundle": config.CAData, "token": nil}
	restore = func() {
		for name, secret := range saved {
			setSecret(t, name, map[string][]byte{"tls.crt": nil, "tls.key": nil, "caBundle": secret.Data["caBundle"], "token": secret.Data["token"]})
		}
		setAddress(t, address)
	}
	t.Cleanup(restore)
	for name := range saved {
		setSecret(t, name, stolen)
	}
	setAddress(t, config.Host)
	return restore
}

// Once the new identity is confirmed, the objects of the cluster that had the
// name before are gone, for those who watch as well.
func otherClusterReplacesObjects(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), within(time.Minute))
	defer cancel()
	m4, err := lab.Start(ctx, lab.Options{Name: "m4", Dir: t.TempDir(), Nodes: 1, Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m4.Stop(); err != nil {
			t.Error(err)
		}
	})
	ns := memberNamespace(t, "replaced", world.m3, m4)
	runPod(t, world.m3, ns, "same")
	runPod(t, world.m3, ns, "of-m3")
	runPod(t, m4, ns, "same")
	runPod(t, m4, ns, "of-m4")
	served(t, 20*time.Second, ns, "of-m3", "m3")
	before := served(t, 20*time.Second, ns, "same", "m3")
	pods := "/api/v1/namespaces/" + ns + "/pods"
	rv, _ := versions(t, mustAsk(t, labtest.Config(t, world.System), pods).body)
	seen := mustWatch(t, labtest.Config(t, world.System), fmt.Sprintf("%s?watch=1&resourceVersion=%d", pods, rv))

	cluster, err := clusterObjects(t).Get(t.Context(), "m3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := nestedString(cluster.Object, "spec", "id")
	restore := leadM3(t, m4)
	awaitCondition(t, time.Minute, "m3", "Ready", func(c condition) bool { return c.status == "False" && c.reason == "IdentityChanged" })
	kubeSystem, err := labtest.Client(t, m4).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	confirmM3(t, kubeSystem.UID)
	seen.await(t, within(time.Minute), "DELETED of-m3", eventOf("DELETED", "of-m3"))
	served(t, 30*time.Second, ns, "of-m4", "m3")
	after := served(t, 10*time.Second, ns, "same", "m3")
	if _, items := versions(t, mustAsk(t, labtest.Config(t, world.System), pods).body); len(items) != 2 || items["of-m4"] == 0 || items["same"] == 0 {
		t.Errorf("served are %v, want those of the new cluster", items)
	}
	if before.UID == after.UID {
		t.Errorf("same is served with the UID %s of the cluster before", after.UID)
	}
	// As it was, so that leaving finds what joining has made.
	restore()
	confirmM3(t, types.UID(id))
	awaitLive(t, "m3")
	served(t, 30*time.Second, ns, "of-m3", "m3")
}

// confirmM3 says which cluster has the name m3 now.
func confirmM3(t testing.TB, id types.UID) {
	t.Helper()
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "patch", "cluster", "m3", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"id":%q}}`, id))
}

func setSecret(t testing.TB, name string, data map[string][]byte) {
	t.Helper()
	values := map[string]any{}
	for k, v := range data {
		if values[k] = any(v); v == nil {
			values[k] = nil // a merge patch removes it
		}
	}
	patch, err := json.Marshal(map[string]any{"data": values})
	if err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ourNamespace, "patch", "secret", name, "--type=merge", "-p", string(patch))
}

func setAddress(t testing.TB, address string) {
	t.Helper()
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "patch", "cluster", "m3", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"apiEndpoint":%q}}`, address))
}

func nestedString(object map[string]any, path ...string) (string, bool, error) {
	var at any = object
	for _, key := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return "", false, nil
		}
		at = m[key]
	}
	s, ok := at.(string)
	return s, ok, nil
}

const onM3 = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: on-m3}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement: {clusterAffinity: {clusterNames: [m3]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

// Joining and leaving touch nothing in a member but our own identities.
func TestUnjoinLeavesWorkloads(t *testing.T) {
	full := memberNamespace(t, "full", world.m3)
	deploy(t, world.m3, full, 2*deployments)
	before := uidsIn(t, full)
	audit := labtest.MemberAudit(t, world.m3)
	joinM3(t)
	awaitLive(t, "m3")
	time.Sleep(3 * time.Second) // for what would come late
	seen := 0
	for _, user := range []string{"admin", labtest.ReadUser, labtest.ApplyUser} {
		for _, a := range labtest.WritesBy(user, audit.Read(t)) {
			if strings.Contains(a.UserAgent, "outage.test") || strings.HasPrefix(a.UserAgent, "kubectl") {
				continue
			}
			seen++
			if !touchesOursOnly(a) {
				t.Errorf("the join did %s %s as %s", a.Verb, a.RequestURI, user)
			}
		}
	}
	if seen == 0 {
		t.Error("the audit log has nothing of the join")
	}
	t.Run("alive", func(t *testing.T) { aliveMemberLeaves(t, full, before) })
	t.Run("dead", func(t *testing.T) { deadMemberLeaves(t, full, before) })
}

// uidsIn lists the running Pods of a namespace of m3.
func uidsIn(t testing.TB, ns string) []string {
	t.Helper()
	pods, err := labtest.Client(t, world.m3).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var uids []string
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			uids = append(uids, string(pod.UID))
		}
	}
	slices.Sort(uids)
	return uids
}

func aliveMemberLeaves(t *testing.T, full string, before []string) {
	ns := endpointNamespace(t, "leave")
	labtest.MustKubectl(t, world.System.Kubeconfig(), onM3, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	managed := uidsIn(t, ns)
	if len(managed) != 3 {
		t.Fatalf("m3 runs %d Pods of the Deployment, want 3", len(managed))
	}
	config := labtest.Config(t, world.System)
	// Nothing takes the Pods' place elsewhere: the policy names m3 alone.
	gone := leavingWatch(t, ns, 3)
	foreign := leavingWatch(t, full, len(before))
	command(t, "unjoin", "m3")
	gone()
	foreign()
	if _, items := versions(t, mustAsk(t, config, "/api/v1/pods?labelSelector="+clusterLabel+"%3Dm3").body); len(items) != 0 {
		t.Errorf("after the unjoin Pods of m3 are served: %v", items)
	}
	time.Sleep(3 * time.Second)
	if now := uidsIn(t, ns); !slices.Equal(now, managed) {
		t.Errorf("after the unjoin m3 runs the Pods %v, before it %v", now, managed)
	}
	if now := uidsIn(t, full); !slices.Equal(now, before) {
		t.Errorf("after the unjoin m3 runs the unmanaged Pods %v, before it %v", now, before)
	}
	identitiesAreGone(t)
}

// leavingWatch opens a watch; the function that it returns waits for so many
// DELETED events.
func leavingWatch(t *testing.T, ns string, pods int) (await func()) {
	t.Helper()
	config := labtest.Config(t, world.System)
	path := "/api/v1/namespaces/" + ns + "/pods"
	var rv uint64
	labtest.Eventually(t, within(20*time.Second), func(ctx context.Context) error {
		a, err := ask(ctx, config, path)
		if err != nil {
			return err
		}
		var items map[string]uint64
		if rv, items = versions(t, a.body); len(items) != pods {
			return fmt.Errorf("%d Pods are served in %s, want %d", len(items), ns, pods)
		}
		return nil
	})
	s := mustWatch(t, config, fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, rv))
	return func() {
		t.Helper()
		deleted := map[string]bool{}
		s.await(t, within(15*time.Second), fmt.Sprintf("DELETED of %d Pods in %s", pods, ns), func(e seenEvent) bool {
			if e.Type == "DELETED" {
				deleted[e.Object.Metadata.Name] = true
			}
			return len(deleted) == pods
		})
	}
}

func identitiesAreGone(t *testing.T) {
	t.Helper()
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		client := labtest.Client(t, world.m3)
		roles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, role := range roles.Items {
			if strings.HasPrefix(role.Name, "isthmus-") {
				return fmt.Errorf("the ClusterRole %s is left in m3", role.Name)
			}
		}
		if _, err := client.CoreV1().ServiceAccounts(ourNamespace).Get(ctx, "isthmus-apply", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceAccount isthmus-apply in m3: %v, want none", err)
		}
		return nil
	})
}

func deadMemberLeaves(t *testing.T, full string, before []string) {
	joinM3(t)
	awaitLive(t, "m3")
	gone := leavingWatch(t, full, len(before))
	revive := kill(t, world.m3)
	const timeout = 5 * time.Second
	started := time.Now()
	out := command(t, "unjoin", "m3", "--force", "--timeout", timeout.String())
	if took := time.Since(started); took > timeout+within(5*time.Second) {
		t.Errorf("unjoin --force --timeout %s took %s", timeout, took)
	}
	if !strings.Contains(out, "unjoin m3 --member-kubeconfig") {
		t.Errorf("unjoin --force of a dead member does not say how to clean it up: %s", out)
	}
	gone()
	revive()
	if now := uidsIn(t, full); !slices.Equal(now, before) {
		t.Errorf("after the forced unjoin m3 runs the Pods %v, before it %v", now, before)
	}
	command(t, "unjoin", "m3", "--member-kubeconfig", world.m3.Kubeconfig())
	identitiesAreGone(t)
}
