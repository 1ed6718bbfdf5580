package spine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const ourNamespace = "isthmus-system"

// kubectl runs kubectl against the endpoint and fails the test with it.
func kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	return labtest.MustKubectl(t, world.System.Kubeconfig(), stdin, args...)
}

// command runs a subcommand of the endpoint's program.
func command(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(2*time.Minute))
	defer cancel()
	out, err := world.System.Command(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func restart(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(3*time.Minute))
	defer cancel()
	if err := world.System.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// stop ends the endpoint, gracefully unless hard.
func stop(t testing.TB, hard bool) {
	t.Helper()
	var err error
	if hard {
		err = world.System.Kill(endpoint)
	} else {
		err = world.System.StopProcess(endpoint, within(30*time.Second))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deployment is a template of one small container.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "registry.example.com/web:1"}]}
---
`, name, replicas)
}

// duplicated places all Deployments and ConfigMaps of a namespace in m1 and m2,
// whole.
const duplicated = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
---
`

func getDeployment(ctx context.Context, t testing.TB, m *lab.Member, ns, name string) (*appsv1.Deployment, error) {
	return labtest.Client(t, m).AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
}

// awaitReplicas waits until a copy in a member wants so many.
func awaitReplicas(t testing.TB, m *lab.Member, ns, name string, want int32) {
	t.Helper()
	labtest.Eventually(t, within(45*time.Second), func(ctx context.Context) error {
		d, err := getDeployment(ctx, t, m, ns, name)
		if err != nil {
			return err
		}
		if *d.Spec.Replicas != want {
			return fmt.Errorf("%s in %s wants %d replicas, not %d", name, m.Name(), *d.Spec.Replicas, want)
		}
		return nil
	})
}

// awaitOutput waits until a command of kubectl says something.
func awaitOutput(t testing.TB, want string, args ...string) {
	t.Helper()
	labtest.Eventually(t, within(60*time.Second), func(context.Context) error {
		res := labtest.Kubectl(t, world.System.Kubeconfig(), "", args...)
		if !strings.Contains(res.Out, want) {
			return fmt.Errorf("kubectl %s says %q (%s), want %q", strings.Join(args, " "), res.Out, res.Err, want)
		}
		return nil
	})
}

// awaitCondition waits for a condition of a Cluster.
func awaitCondition(t testing.TB, cluster, condition, want string) {
	t.Helper()
	awaitOutput(t, want, "get", "cluster", cluster,
		"-o", `jsonpath={range .status.conditions[?(@.type=="`+condition+`")]}{.status} {.reason}: {.message}{end}`)
}

// awaitEvent waits for an Event of a Cluster.
func awaitEvent(t testing.TB, reason string) {
	t.Helper()
	awaitOutput(t, " "+reason+"\n", "get", "events", "-n", "default", "-o",
		`jsonpath={range .items[?(@.involvedObject.kind=="Cluster")]}{.involvedObject.name} {.reason}{"\n"}{end}`)
}

// changes of what runs that the product made: its fence and identities aside.
func changes(t testing.TB, log labtest.AuditLog) []labtest.Audited {
	t.Helper()
	var out []labtest.Audited
	for _, a := range log.Read(t) {
		o := a.ObjectRef
		ours := o.Namespace == ourNamespace || strings.HasSuffix(o.APIGroup, "authorization.k8s.io") || strings.HasSuffix(o.APIGroup, "authentication.k8s.io")
		if a.Writes() && !ours && (a.User.Username == labtest.ApplyUser || a.User.Username == labtest.ReadUser) {
			out = append(out, a)
		}
	}
	return out
}

func describe(all []labtest.Audited) string {
	var b strings.Builder
	for _, a := range all[:min(len(all), 10)] {
		fmt.Fprintf(&b, "%s %s (%s)\n", a.Verb, a.RequestURI, a.UserAgent)
	}
	return fmt.Sprintf("%d writes:\n%s", len(all), b.String())
}
