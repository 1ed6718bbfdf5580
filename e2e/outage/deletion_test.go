package outage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const everywhere = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment}
  - {apiVersion: v1, kind: ConfigMap}
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.com/web:1"}]}
`

// The engine deletes in a member because somebody wanted it, never because it
// started and found less than it knew.
func TestDeletionByIntentOnly(t *testing.T) {
	awaitLive(t, "m1", "m2")
	members := []*lab.Member{world.m1, world.m2}
	ns := endpointNamespace(t, "intent")
	admin := world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, everywhere, "-n", ns, "apply", "-f", "-")
	copies := map[string]string{}
	for _, m := range members {
		labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
			d, err := labtest.Client(t, m).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			copies[m.Name()] = string(d.UID)
			_, err = labtest.Client(t, m).CoreV1().ConfigMaps(ns).Get(ctx, "settings", metav1.GetOptions{})
			return err
		})
	}
	var logs []labtest.AuditLog
	for _, m := range members {
		logs = append(logs, labtest.MemberAudit(t, m))
	}
	for range 3 {
		restartEndpoint(t)
		awaitLive(t, "m1", "m2")
		time.Sleep(3 * time.Second) // the engine compares after its start
	}
	for i, m := range members {
		if found := deletions(logs[i].Read(t)); len(found) > 0 {
			t.Errorf("restarts made the engine delete in %s: %v", m.Name(), found)
		}
		for _, a := range labtest.WritesBy(labtest.ApplyUser, logs[i].Read(t)) {
			if a.ObjectRef.Namespace == ns {
				t.Errorf("restarts made the engine write to %s: %s %s", m.Name(), a.Verb, a.RequestURI)
			}
		}
		d, err := labtest.Client(t, m).AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || string(d.UID) != copies[m.Name()] {
			t.Errorf("after restarts the copy in %s is %v, %v; want the one of before", m.Name(), d.UID, err)
		}
	}
	t.Run("intent", func(t *testing.T) { intentDeletes(t, ns, members, logs) })
	t.Run("unmanaged", func(t *testing.T) { unmanagedIsLeft(t, ns) })
}

// intentDeletes: what is deleted through the endpoint goes in the members.
func intentDeletes(t *testing.T, ns string, members []*lab.Member, logs []labtest.AuditLog) {
	admin := world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "deployment/web", "configmap/settings", "--timeout=150s")
	for i, m := range members {
		labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
			if _, err := labtest.Client(t, m).AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the copy of a deleted Deployment in %s: %v, want none", m.Name(), err)
			}
			if _, err := labtest.Client(t, m).CoreV1().ConfigMaps(ns).Get(ctx, "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the copy of a deleted ConfigMap in %s: %v, want none", m.Name(), err)
			}
			return nil
		})
		// That the audit log shows them is what makes its silence above mean something.
		found := deletions(logs[i].Read(t))
		for _, name := range []string{"/deployments/web", "/configmaps/settings"} {
			if !slices.ContainsFunc(found, func(uri string) bool { return strings.Contains(uri, name) }) {
				t.Errorf("deletions in %s: %v, want one of %s", m.Name(), found, name)
			}
		}
		if len(found) > 2 {
			t.Errorf("deletions in %s: %v, want those of web and settings", m.Name(), found)
		}
	}
}

// deletions by the identity that applies.
func deletions(all []labtest.Audited) []string {
	var out []string
	for _, a := range labtest.WritesBy(labtest.ApplyUser, all) {
		if strings.HasPrefix(a.Verb, "delete") {
			out = append(out, a.Verb+" "+a.RequestURI)
		}
	}
	return out
}

// unmanagedIsLeft: a member's own object of a template's name stays as it is,
// and the template says so.
func unmanagedIsLeft(t *testing.T, ns string) {
	m1 := labtest.Client(t, world.m1).AppsV1().Deployments(ns)
	own := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Labels: map[string]string{"whose": "member"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "own"}},
		},
	}
	own.Spec.Template.Labels = map[string]string{"app": "own"}
	own.Spec.Template.Spec = barePod(ns, "own").Spec
	before, err := m1.Create(t.Context(), own, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, template, _ := strings.Cut(everywhere, "kind: ConfigMap")
	_, template, _ = strings.Cut(template, "---\n")
	labtest.MustKubectl(t, world.System.Kubeconfig(), strings.ReplaceAll(template, "web", "plain"), "-n", ns, "create", "-f", "-")
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		_, err := labtest.Client(t, world.m2).AppsV1().Deployments(ns).Get(ctx, "plain", metav1.GetOptions{})
		return err
	})
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		events, err := labtest.Client(t, world.System).CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=plain"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "UnmanagedObjectExists" && e.Type == "Warning" && strings.Contains(e.Message, "m1") {
				return nil
			}
		}
		return fmt.Errorf("no Event of %d says that m1 has an unmanaged object of the name", len(events.Items))
	})
	labtest.Eventually(t, within(30*time.Second), func(context.Context) error {
		said := labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "get", "resourcebindings",
			"-o", `jsonpath={.items[*].status.conditions[?(@.type=="FullyApplied")].message}`)
		if !strings.Contains(said, "m1") || !strings.Contains(said, "not managed") {
			return fmt.Errorf("the condition FullyApplied says %q, want m1 and that its object is not managed", said)
		}
		return nil
	})
	after, err := m1.Get(t.Context(), "plain", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.UID != before.UID || after.Generation != before.Generation || after.Labels["whose"] != "member" || after.Labels["isthmus.dev/managed"] != "" {
		t.Errorf("the member's own Deployment became %v (UID %s, generation %d)", after.Labels, after.UID, after.Generation)
	}
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "-n", ns, "delete", "deployment/plain", "--timeout=150s")
	time.Sleep(3 * time.Second)
	if _, err := m1.Get(t.Context(), "plain", metav1.GetOptions{}); err != nil {
		t.Errorf("after the template is deleted the member's own Deployment: %v", err)
	}
}
