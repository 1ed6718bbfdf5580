package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const settled = 90 * time.Second

// running are the Pods that a selector finds, by UID; want says how many.
func running(ctx context.Context, t *testing.T, ns, selector string, want int) (map[types.UID]corev1.Pod, error) {
	list, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	pods := map[types.UID]corev1.Pod{}
	for i := range list.Items {
		p := list.Items[i]
		if p.Status.Phase != corev1.PodRunning {
			return nil, fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
		}
		pods[p.UID] = p
	}
	if len(pods) != want {
		return nil, fmt.Errorf("%d Pods, want %d", len(pods), want)
	}
	return pods, nil
}

// ownedBySets: every Pod is owned by a ReplicaSet that is served, and that has
// an owner if owned says so.
func ownedBySets(ctx context.Context, t *testing.T, ns string, pods map[types.UID]corev1.Pod, owned bool) error {
	list, err := endpoint(t).AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	uids := map[types.UID]string{}
	var names []string
	for i := range list.Items {
		s := &list.Items[i]
		names = append(names, as(s))
		if (metav1.GetControllerOf(s) != nil) == owned {
			uids[s.UID] = s.Name
		}
	}
	used := map[types.UID]bool{}
	for _, p := range pods {
		o := metav1.GetControllerOf(&p)
		if o == nil || uids[o.UID] != o.Name || o.Name == "" {
			return fmt.Errorf("%s is owned by %+v; there are %q", p.Name, o, names)
		}
		used[o.UID] = true
	}
	if len(list.Items) != len(used) {
		return fmt.Errorf("%q are there for the owners %v", names, used)
	}
	return nil
}

// A Deployment that is deleted alone: its Pods run on under ReplicaSets that
// are seen, a new one takes all of them over, and who deletes what remains
// stops the Pods.
func TestDeploymentDeletedAlone(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	manifest := strings.ReplaceAll(ownDeployment, "REPLICAS", "3")
	apply(t, admin, ns, manifest)
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "deployment/own", "--timeout=150s")
	var before map[types.UID]corev1.Pod
	labtest.Eventually(t, settled, func(ctx context.Context) (err error) {
		if before, err = running(ctx, t, ns, "app=own", 3); err != nil {
			return err
		}
		return ownedBySets(ctx, t, ns, before, true)
	})
	same := func(ctx context.Context, owned bool) error {
		pods, err := running(ctx, t, ns, "app=own", 3)
		if err != nil {
			return err
		}
		for uid := range pods {
			if _, ok := before[uid]; !ok {
				return fmt.Errorf("%s is new", pods[uid].Name)
			}
		}
		return ownedBySets(ctx, t, ns, pods, owned)
	}
	orphan := func() {
		t.Helper()
		labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "deployment", "own", "--cascade=orphan", "--timeout=150s")
		for _, name := range []string{"m1", "m2"} {
			if _, err := member(t, name).AppsV1().Deployments(ns).Get(t.Context(), "own", metav1.GetOptions{}); !isNotFound(err) {
				t.Errorf("%s keeps the Deployment: %v", name, err)
			}
		}
		labtest.Eventually(t, settled, func(ctx context.Context) error { return same(ctx, false) })
	}
	orphan()
	apply(t, admin, ns, manifest)
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "deployment/own", "--timeout=150s")
	labtest.Eventually(t, settled, func(ctx context.Context) error { return same(ctx, true) })
	orphan()
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "rs", "--all", "--timeout=150s")
	labtest.Eventually(t, settled, func(ctx context.Context) error {
		_, err := running(ctx, t, ns, "app=own", 0)
		return err
	})
}

// What users do to change volumeClaimTemplates: the new StatefulSet goes where
// the Pods are, and takes them over.
func TestStatefulSetDeletedAlone(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	manifest := strings.NewReplacer("KIND", "StatefulSet", "SPEC", "serviceName: db\n  replicas: 2").Replace(database)
	apply(t, admin, ns, manifest)
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "statefulset/db", "--timeout=150s")
	var before map[types.UID]corev1.Pod
	labtest.Eventually(t, settled, func(ctx context.Context) (err error) {
		before, err = running(ctx, t, ns, "app=db", 2)
		return err
	})
	owners := func(ctx context.Context, owner types.UID) error {
		pods, err := running(ctx, t, ns, "app=db", 2)
		if err != nil {
			return err
		}
		for uid, p := range pods {
			if _, ok := before[uid]; !ok {
				return fmt.Errorf("%s is new", p.Name)
			}
			switch o := metav1.GetControllerOf(&p); {
			case owner == "" && o != nil, owner != "" && (o == nil || o.UID != owner || o.Name != "db"):
				return fmt.Errorf("%s is owned by %+v, want %q", p.Name, o, owner)
			}
		}
		revisions, err := endpoint(t).AppsV1().ControllerRevisions(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(revisions.Items) != 1 {
			return fmt.Errorf("%d revisions are shown: %w", len(revisions.Items), err)
		}
		return nil
	}
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "statefulset", "db", "--cascade=orphan", "--timeout=150s")
	labtest.Eventually(t, settled, func(ctx context.Context) error { return owners(ctx, "") })
	apply(t, admin, ns, manifest)
	labtest.MustKubectl(t, admin, "", "-n", ns, "rollout", "status", "statefulset/db", "--timeout=150s")
	created, err := endpoint(t).AppsV1().StatefulSets(ns).Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, settled, func(ctx context.Context) error { return owners(ctx, created.UID) })
}

// A Job that is deleted alone leaves its Pods, without owners.
func TestJobDeletedAlone(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	labtest.MustKubectl(t, admin, "", "-n", ns, "create", "job", "once", "--image=c")
	only := func(owned bool) {
		t.Helper()
		labtest.Eventually(t, settled, func(ctx context.Context) error {
			pods, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "job-name=once"})
			if err != nil {
				return err
			}
			if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil || (metav1.GetControllerOf(&pods.Items[0]) != nil) != owned {
				return fmt.Errorf("want one Pod, owned %v: %+v", owned, pods.Items)
			}
			return nil
		})
	}
	only(true)
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "job", "once", "--cascade=orphan", "--timeout=150s")
	only(false)
}
