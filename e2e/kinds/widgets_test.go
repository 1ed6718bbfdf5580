package kinds

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              colour: {type: string, description: What the widget is painted in.}
              size: {type: integer}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// defineWidgets gives the members a kind that the control plane does not have.
func defineWidgets(w *labtest.World) error {
	set, err := artifacts.Locate()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range w.Members {
		cmd := exec.Command(set.Path("kubectl"), "--kubeconfig", m.Kubeconfig(), "apply", "-f", "-")
		cmd.Stdin = strings.NewReader(widgetDefinition)
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", m.Name(), err, out))
		}
	}
	return errors.Join(errs...)
}

const widget = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: NAME}, spec: {colour: COLOUR, size: 3}}`

// A kind that exists in the members only: discovery, explain and RBAC come from
// the imported definition, the objects and the columns are the members'.
func TestMemberDefinition(t *testing.T) {
	t.Parallel()
	admin := world.System.Kubeconfig()
	for _, name := range []string{"m1", "m2"} {
		// Rights to a custom kind are given by joining with its name.
		if _, err := world.System.Command(t.Context(), "join", name, "--member-kubeconfig", world.Member(name).Kubeconfig(),
			"--kubeconfig", admin, "--member-kinds", "widgets.example.com"); err != nil {
			t.Fatal(err)
		}
	}
	ns := namespaceEverywhere(t)
	labtest.Eventually(t, 40*time.Second, func(context.Context) error {
		if res := labtest.Kubectl(t, admin, "", "explain", "widgets.spec.colour"); res.Code != 0 || !strings.Contains(res.Out, "painted") {
			return fmt.Errorf("explain: %+v", res)
		}
		return nil
	})
	out := labtest.MustKubectl(t, admin, "", "get", "crd", "widgets.example.com", "-o", "jsonpath={.metadata.annotations}")
	if !strings.Contains(out, `"isthmus.dev/member-kind":"true"`) || !strings.Contains(out, `"isthmus.dev/imported-from":"m1"`) {
		t.Errorf("annotations of the imported definition: %s", out)
	}
	for name, colour := range map[string]string{"m1": "red", "m2": "blue"} {
		apply(t, world.Member(name).Kubeconfig(), ns, strings.NewReplacer("NAME", "box", "COLOUR", colour).Replace(widget))
	}
	var table string
	labtest.Eventually(t, 80*time.Second, func(context.Context) error {
		table = strings.Join(strings.Fields(labtest.MustKubectl(t, admin, "", "-n", ns, "get", "wd")), " ")
		if want := "NAME CLUSTER COLOUR SIZE box m1 red 3 box.m2 m2 blue 3"; table != want {
			return fmt.Errorf("table: %s\nwant:  %s", table, want)
		}
		return nil
	})
	labtest.MustKubectl(t, admin, "", "-n", ns, "patch", "widget", "box.m2", "--type=merge", "-p", `{"spec":{"colour":"green"}}`)
	got := labtest.MustKubectl(t, world.Member("m2").Kubeconfig(), "", "-n", ns, "get", "widget", "box", "-o", "jsonpath={.spec.colour}")
	if got != "green" {
		t.Errorf("in m2 the widget is %s", got)
	}
	apply(t, admin, ns, strings.NewReplacer("{name: NAME}", "{name: new, labels: {isthmus.dev/cluster: m2}}", "COLOUR", "white").Replace(widget))
	labtest.MustKubectl(t, world.Member("m2").Kubeconfig(), "", "-n", ns, "get", "widget", "new")
	labtest.MustKubectl(t, admin, "", "-n", ns, "delete", "widget", "--all")
	if out := labtest.MustKubectl(t, admin, "", "-n", ns, "get", "widgets", "-o", "name"); out != "" {
		t.Errorf("after delete --all: %s", out)
	}
	definitionGoesAndComes(t, ns)
}

// definitionGoesAndComes takes the kind away from m2: its objects go, those of
// m1 stay, and all are there again when it is back.
func definitionGoesAndComes(t *testing.T, ns string) {
	t.Helper()
	admin, m2 := world.System.Kubeconfig(), world.Member("m2").Kubeconfig()
	dynamicClient, err := dynamic.NewForConfig(labtest.Config(t, world.System))
	if err != nil {
		t.Fatal(err)
	}
	served := func(want string) {
		t.Helper()
		labtest.Eventually(t, 2*time.Minute, func(context.Context) error {
			res := labtest.Kubectl(t, admin, "", "-n", ns, "get", "widgets", "-o", "name")
			if got := strings.Join(strings.Fields(res.Out), " "); res.Code != 0 || got != want {
				return fmt.Errorf("served %q %s, want %q", got, res.Err, want)
			}
			return nil
		})
	}
	of := func(name string) string { return strings.NewReplacer("NAME", name, "COLOUR", "red").Replace(widget) }
	apply(t, world.Member("m1").Kubeconfig(), ns, of("near"))
	apply(t, m2, ns, of("far"))
	const both = "widget.example.com/far widget.example.com/near"
	served(both)
	w, err := dynamicClient.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	labtest.MustKubectl(t, m2, "", "delete", "crd", "widgets.example.com", "--timeout=150s")
	served("widget.example.com/near")
	apply(t, m2, "", widgetDefinition)
	labtest.MustKubectl(t, m2, "", "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=150s")
	apply(t, m2, ns, of("far"))
	served(both)
	var seen []string
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok {
					t.Fatalf("the watch ended after %v", seen)
				}
				if o, err := meta.Accessor(e.Object); err == nil && o.GetName() == "far" {
					seen = append(seen, string(e.Type))
				}
			default:
				if len(seen) < 3 {
					return fmt.Errorf("the watch has seen %v", seen)
				}
				return nil
			}
		}
	})
	if want := []string{"ADDED", "DELETED", "ADDED"}; !slices.Equal(seen, want) {
		t.Errorf("the watch has seen %v of m2's widget, want %v", seen, want)
	}
}
