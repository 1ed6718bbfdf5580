package journey

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A Deployment that only a member has can be read through the endpoint and not
// be written; managed copies never show beside their template.
func TestUnmanagedWorkloads(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	m2 := world.m2.Kubeconfig()
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, world.m2).CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	labtest.MustKubectl(t, m2, strings.Replace(webDeployment, "metadata: {name: web,", "metadata: {name: own,", 1), "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, endpoint, strings.ReplaceAll(webDeployment, "web", "managed"), "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, world.m2).AppsV1().Deployments(ns).Get(ctx, "managed", metav1.GetOptions{})
		return err
	})
	deployments := labtest.Client(t, world.System).AppsV1().Deployments(ns)
	got, err := deployments.Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil || got.Labels["isthmus.dev/cluster"] != "m2" {
		t.Fatalf("get: %v, labels %v", err, got.Labels)
	}
	names := func(selector string) string {
		list, err := deployments.List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, d := range list.Items {
			out = append(out, d.Name+"@"+d.Labels["isthmus.dev/cluster"])
		}
		if list.ResourceVersion == "" {
			t.Errorf("list %q has no resourceVersion", selector)
		}
		return fmt.Sprint(out)
	}
	for selector, want := range map[string]string{
		"":                               "[managed@]",
		"isthmus.dev/cluster=m2":         "[own@m2]",
		"isthmus.dev/cluster=m1":         "[]",
		"isthmus.dev/cluster":            "[own@m2]",
		"isthmus.dev/cluster=m2,app=web": "[own@m2]",
		"isthmus.dev/cluster=m2,app=x":   "[]",
	} {
		if got := names(selector); got != want {
			t.Errorf("list -l %q: %s, want %s", selector, got, want)
		}
	}
	if err := deployments.Delete(t.Context(), "own", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete of what only a member has: %v, want NotFound", err)
	}
	if _, err := labtest.Client(t, world.m2).AppsV1().Deployments(ns).Get(t.Context(), "own", metav1.GetOptions{}); err != nil {
		t.Errorf("m2's own Deployment: %v", err)
	}
}
