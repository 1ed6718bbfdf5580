// Package kinds shows which objects of which kinds a client sees at the
// endpoint, whose they are, and where its writes go:
//
//	TestMain -> m1, m2 (package lab) -> the endpoint, both joined
//	tests    -> kubectl and client-go -> the endpoint | m1 | m2
//
// With KINDS_DIR the clusters live in that folder and outlive the run;
// KINDS_BINARY replaces the endpoint's program.
package kinds

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var world labtest.World

func TestMain(m *testing.M) {
	os.Exit(labtest.Main(m, &world, labtest.WorldOptions{
		Name:    "kinds",
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
		Join:    []string{"m1", "m2"},
		System: lab.SystemOptions{Flags: []string{
			"--authorize-clusters", "--member-resources=widgets.v1.example.com=Widget",
		}},
		Before: defineWidgets,
	}))
}

func endpoint(t *testing.T) kubernetes.Interface { return labtest.Client(t, world.System) }

func member(t *testing.T, name string) kubernetes.Interface {
	return labtest.Client(t, world.Member(name))
}

// namespaceEverywhere makes a namespace that the members have too.
func namespaceEverywhere(t *testing.T) string {
	t.Helper()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	for _, name := range []string{"m1", "m2"} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			_, err := member(t, name).CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	return ns
}

// apply applies a manifest in a namespace of a cluster.
func apply(t *testing.T, kubeconfig, ns, manifest string) {
	t.Helper()
	labtest.MustKubectl(t, kubeconfig, manifest, "-n", ns, "apply", "-f", "-")
}

// want compares what a list of names comes to be.
func want(t *testing.T, expected []string, list func(context.Context) ([]string, error)) {
	t.Helper()
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		got, err := list(ctx)
		if err != nil {
			return err
		}
		slices.Sort(got)
		if !slices.Equal(got, expected) {
			return fmt.Errorf("listed %q, want %q", got, expected)
		}
		return nil
	})
}

// as names an object with its cluster; the control plane has no name.
func as(o metav1.Object) string { return o.GetName() + "@" + o.GetLabels()["isthmus.dev/cluster"] }

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
