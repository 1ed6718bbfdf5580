package adoption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// spaces makes a namespace in the control plane, and with it in the members.
func spaces(t *testing.T) string {
	t.Helper()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	for _, m := range []*lab.Member{world.Member("m1"), world.Member("m2")} {
		labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
			_, err := labtest.Client(t, m).CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
			return err
		})
	}
	return ns
}

const widgetsCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, free: {type: object, x-kubernetes-preserve-unknown-fields: true}%[2]s}}}}}
`

const widgetPolicy = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: widgets}
spec:
  resourceSelectors: [{apiVersion: %s/v1, kind: Widget}]
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
`

// A member with an older schema gets what it knows, the rest is named, nothing is
// written again and again, and a newer schema is noticed.
func TestFieldsDropped(t *testing.T) {
	t.Parallel()
	m1, m2, endpoint := world.Member("m1"), world.Member("m2"), world.System.Kubeconfig()
	group := labtest.UniqueName(t, "fields") + ".example.com"
	newer, older := fmt.Sprintf(widgetsCRD, group, ", colour: {type: string}, lid: {type: object, properties: {round: {type: boolean}}}"), fmt.Sprintf(widgetsCRD, group, "")
	for kubeconfig, crd := range map[string]string{endpoint: newer, m1.Kubeconfig(): newer, m2.Kubeconfig(): older} {
		labtest.MustKubectl(t, kubeconfig, crd, "apply", "-f", "-")
		t.Cleanup(func() { labtest.Kubectl(t, kubeconfig, "", "delete", "crd", "widgets."+group, "--wait=false") })
		labtest.MustKubectl(t, kubeconfig, "", "wait", "crd/widgets."+group, "--for=condition=Established", "--timeout=150s")
	}
	ns := spaces(t)
	labtest.MustKubectl(t, endpoint, fmt.Sprintf(widgetPolicy, group), "-n", ns, "apply", "-f", "-")
	widget := fmt.Sprintf(`{apiVersion: %s/v1, kind: Widget, metadata: {name: w}, spec: {size: 3, colour: red, lid: {round: true}, free: {any: {thing: [1, 2]}}}}`, group)
	labtest.MustKubectl(t, endpoint, widget, "-n", ns, "apply", "-f", "-")

	const all, known = `{"colour":"red","free":{"any":{"thing":[1,2]}},"lid":{"round":true},"size":3}`, `{"free":{"any":{"thing":[1,2]}},"size":3}`
	holds := func(m *lab.Member, want string) {
		t.Helper()
		labtest.Eventually(t, 2*time.Minute, func(context.Context) error {
			got := labtest.Kubectl(t, m.Kubeconfig(), "", "-n", ns, "get", "widgets."+group, "w", "-o", "jsonpath={.spec}")
			if got.Out != want {
				return fmt.Errorf("%s: spec %s%s", m.Name(), got.Out, got.Err)
			}
			return nil
		})
	}
	holds(m1, all)
	holds(m2, known)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if c := condition(ctx, t, ns, "w-widget", "FieldsDropped"); c != "True UnknownToMember m2: spec.colour, spec.lid" {
			return fmt.Errorf("FieldsDropped: %s", c)
		}
		if c := condition(ctx, t, ns, "w-widget", "FullyApplied"); !strings.HasPrefix(c, "True") {
			return fmt.Errorf("FullyApplied: %s", c)
		}
		return nil
	})
	quiet(t, m2, ns)

	labtest.MustKubectl(t, m2.Kubeconfig(), newer, "apply", "-f", "-")
	holds(m2, all)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if c := condition(ctx, t, ns, "w-widget", "FieldsDropped"); !strings.HasPrefix(c, "False") {
			return fmt.Errorf("FieldsDropped: %s", c)
		}
		return nil
	})
}

// The API stores lists with equal keys, which server-side apply refuses: they
// reach the members all the same, and are written once.
func TestDuplicateKeys(t *testing.T) {
	t.Parallel()
	m1, endpoint := world.Member("m1"), world.System.Kubeconfig()
	ns := spaces(t)
	labtest.MustKubectl(t, endpoint, onlyM1, "-n", ns, "apply", "-f", "-")
	body := strings.NewReplacer(`{name: B, value: "2"}`, `{name: B, value: "2"}, {name: A, value: "9"}`,
		"[{containerPort: 80}]", "[{containerPort: 80, name: one}, {containerPort: 80, name: two}, {containerPort: 80, protocol: UDP}]",
		"      containers:", "      imagePullSecrets: [{name: p}, {name: p}]\n      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.1, hostnames: [b]}]\n      containers:").
		Replace(manifest("Deployment", "web", 1))
	labtest.MustKubectl(t, endpoint, body, "-n", ns, "create", "-f", "-")
	labtest.MustKubectl(t, endpoint, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	got := labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[*].value} {.spec.template.spec.containers[0].ports[*].name} {.spec.template.spec.hostAliases[*].hostnames[0]}")
	if got != "2 9 two b" {
		t.Errorf("the member holds %q", got)
	}
	quiet(t, m1, ns)
}

// What the template speaks of is corrected, by server-side apply with force; what
// it does not speak of stays.
func TestFederationWinsWhereItSpeaks(t *testing.T) {
	t.Parallel()
	m1, endpoint := world.Member("m1"), world.System.Kubeconfig()
	ns := spaces(t)
	log := labtest.MemberAudit(t, m1)
	labtest.MustKubectl(t, endpoint, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: "1"}}`, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, m1).CoreV1().ConfigMaps(ns).Get(ctx, "c", metav1.GetOptions{})
		return err
	})
	labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "patch", "configmap", "c", "--type=merge", "-p", `{"data":{"a":"2","theirs":"x"},"metadata":{"annotations":{"theirs":"x"}}}`)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		c, err := labtest.Client(t, m1).CoreV1().ConfigMaps(ns).Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Data["a"] != "1" {
			return fmt.Errorf("not corrected: %v", c.Data)
		}
		if c.Data["theirs"] != "x" || c.Annotations["theirs"] != "x" {
			t.Errorf("what is not the federation's is gone: %v %v", c.Data, c.Annotations)
		}
		return nil
	})
	writes := 0
	for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
		if a.ObjectRef.Namespace != ns || a.ObjectRef.Name != "c" {
			continue
		}
		writes++
		if a.Verb != "patch" || !strings.Contains(a.RequestURI, "fieldManager=isthmus") || !strings.Contains(a.RequestURI, "force=true") {
			t.Errorf("written by something else than an apply with force: %s %s", a.Verb, a.RequestURI)
		}
	}
	if writes != 2 {
		t.Errorf("%d writes instead of a first one and a correction", writes)
	}
	quiet(t, m1, ns)
}

// A controller that keeps changing a value back is not fought: the corrections
// become rare, the binding says what is contested, and who does it.
func TestContestedField(t *testing.T) {
	t.Parallel()
	m1, endpoint := world.Member("m1"), world.System.Kubeconfig()
	ns := spaces(t)
	labtest.MustKubectl(t, endpoint, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: "1", b: "1"}}`, "-n", ns, "apply", "-f", "-")
	client := labtest.Client(t, m1).CoreV1().ConfigMaps(ns)
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := client.Get(ctx, "c", metav1.GetOptions{})
		return err
	})
	log := labtest.MemberAudit(t, m1)
	ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
	defer stop()
	fought := 0
	for ctx.Err() == nil {
		c, err := client.Get(ctx, "c", metav1.GetOptions{})
		if err == nil && c.Data["a"] == "1" {
			fought++
			_, _ = client.Patch(ctx, "c", types.MergePatchType, []byte(`{"data":{"a":"2"}}`), metav1.PatchOptions{FieldManager: "foe"})
		}
		time.Sleep(50 * time.Millisecond)
	}
	writes := 0
	for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
		if a.ObjectRef.Namespace == ns && a.ObjectRef.Name == "c" {
			writes++
		}
	}
	if writes < 3 || writes > 8 {
		t.Errorf("%d corrections in 25 s against %d changes", writes, fought)
	}
	c := condition(t.Context(), t, ns, "c-configmap", "FullyApplied")
	for _, says := range []string{"False", "m1:", "another controller keeps changing", "data.a", `"foe"`} {
		if !strings.Contains(c, says) {
			t.Errorf("the condition does not say %q: %s", says, c)
		}
	}
	// The foe has gone: the value is corrected before long.
	labtest.Eventually(t, time.Minute, func(ctx context.Context) error {
		c, err := client.Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Data["a"] != "1" {
			return fmt.Errorf("still %v", c.Data)
		}
		return nil
	})
}

// The engine asks a member for its own copies only: what it is not to manage it
// does not read by the list.
func TestUnmanagedAreNotListed(t *testing.T) {
	t.Parallel()
	m1, endpoint := world.Member("m1"), world.System.Kubeconfig()
	ns := spaces(t)
	labtest.MustKubectl(t, endpoint, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`, "-n", ns, "apply", "-f", "-")
	labtest.MustKubectl(t, endpoint, `{apiVersion: v1, kind: Secret, metadata: {name: s}}`, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, errC := labtest.Client(t, m1).CoreV1().ConfigMaps(ns).Get(ctx, "c", metav1.GetOptions{})
		_, errS := labtest.Client(t, m1).CoreV1().Secrets(ns).Get(ctx, "s", metav1.GetOptions{})
		return errors.Join(errC, errS)
	})
	looked := 0
	for _, a := range labtest.WholeAudit(m1).Read(t) {
		if a.User.Username != labtest.ApplyUser || a.ObjectRef.Resource != "secrets" && a.ObjectRef.Resource != "configmaps" || a.Verb != "list" && a.Verb != "watch" {
			continue
		}
		// What a namespace still holds when it is deleted is read once, and not kept.
		if strings.Contains(a.UserAgent, "isthmus-engine") && a.ObjectRef.Namespace == "" {
			looked++
			if !strings.Contains(a.RequestURI, "labelSelector=isthmus.dev%2Fmanaged%3Dtrue") {
				t.Errorf("the engine lists what is not its own: %s", a.RequestURI)
			}
		}
	}
	if looked == 0 {
		t.Error("the engine has not looked at Secrets and ConfigMaps at all")
	}
}
