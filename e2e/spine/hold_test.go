package spine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// heldColumn is what kubectl get shows of a binding.
func heldMessage(ns, binding string) []string {
	return []string{"-n", ns, "get", "resourcebinding", binding, "-o", `jsonpath={.status.conditions[?(@.type=="Held")].message}`}
}

// A copy on hold is neither written, scaled nor deleted; what differs is shown;
// then the federation wins again.
func TestHoldOnCopy(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	m1, m2 := world.Member("m1"), world.Member("m2")
	kubectl(t, duplicated+deployment("web", 2), "-n", ns, "apply", "-f", "-")
	awaitReplicas(t, m1, ns, "web", 2)
	awaitReplicas(t, m2, ns, "web", 2)
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold=incident")
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "scale", "deployment/web", "--replicas=5")
	awaitOutput(t, "spec.replicas is 5, wanted 2", heldMessage(ns, "web-deployment")...)
	kubectl(t, "", "-n", ns, "set", "image", "deployment/web", "c=registry.example.com/web:2")
	awaitOutput(t, "containers[c].image", heldMessage(ns, "web-deployment")...)
	awaitOutput(t, "m1: ", heldMessage(ns, "web-deployment")...)
	awaitOutput(t, "OnHold", "-n", ns, "get", "events", "-o", "jsonpath={.items[*].reason}")
	if shown := kubectl(t, "", "-n", ns, "get", "resourcebindings"); !strings.Contains(shown, "HELD") || !strings.Contains(shown, "True") {
		t.Errorf("kubectl get shows\n%s", shown)
	}
	time.Sleep(3 * time.Second)
	d, err := getDeployment(t.Context(), t, m1, ns, "web")
	if err != nil || *d.Spec.Replicas != 5 || !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":1") {
		t.Fatalf("the held copy became %+v, %v", d.Spec, err)
	}
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		d, err := getDeployment(ctx, t, m2, ns, "web")
		if err == nil && !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":2") {
			err = fmt.Errorf("the other copy still runs %s", d.Spec.Template.Spec.Containers[0].Image)
		}
		return err
	})

	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold-")
	awaitReplicas(t, m1, ns, "web", 2)
	labtest.Eventually(t, within(30*time.Second), func(context.Context) error {
		if said := kubectl(t, "", heldMessage(ns, "web-deployment")...); said != "" {
			return fmt.Errorf("after the hold was lifted the binding says %q", said)
		}
		return nil
	})

	// The template goes, the held copy stays until the hold is lifted.
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold=incident")
	time.Sleep(time.Second)
	kubectl(t, "", "-n", ns, "delete", "deployment/web", "--timeout=150s")
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		_, err := getDeployment(ctx, t, m2, ns, "web")
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the copy that is not held: %w", err)
		}
		return nil
	})
	if _, err := getDeployment(t.Context(), t, m1, ns, "web"); err != nil {
		t.Fatalf("the held copy of a deleted template: %v", err)
	}
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold-")
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		_, err := getDeployment(ctx, t, m1, ns, "web")
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the copy of a deleted template after its hold: %w", err)
		}
		return nil
	})
}

// A template on hold stands still in every member.
func TestHoldOnTemplate(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, duplicated+deployment("web", 2), "-n", ns, "apply", "-f", "-")
	for _, m := range members() {
		awaitReplicas(t, m, ns, "web", 2)
	}
	kubectl(t, "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold=incident")
	kubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas=4")
	kubectl(t, "", "-n", ns, "patch", "propagationpolicy", "everywhere", "--type=merge", "-p", `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["m1"]}}}}`)
	awaitOutput(t, "spec.replicas is 2, wanted 4", heldMessage(ns, "web-deployment")...)
	awaitOutput(t, "the placement leaves the cluster out", heldMessage(ns, "web-deployment")...)
	time.Sleep(3 * time.Second)
	for _, m := range members() {
		d, err := getDeployment(t.Context(), t, m, ns, "web")
		if err != nil || *d.Spec.Replicas != 2 {
			t.Errorf("the copy in %s of a held template: %v, %v", m.Name(), d, err)
		}
	}
	kubectl(t, "", "-n", ns, "annotate", "deployment/web", "isthmus.dev/hold-")
	awaitReplicas(t, world.Member("m1"), ns, "web", 4)
	labtest.Eventually(t, within(30*time.Second), func(ctx context.Context) error {
		_, err := getDeployment(ctx, t, world.Member("m2"), ns, "web")
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("where the placement leaves the copy out: %w", err)
		}
		return nil
	})
}
