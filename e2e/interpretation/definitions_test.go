package interpretation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// definition of a kind with versions; the first is the stored one.
func definition(plural, kind string, versions ...string) string {
	var list []string
	for i, v := range versions {
		list = append(list, fmt.Sprintf("{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}", v, i == 0))
	}
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: %s, singular: %s, kind: %s}
  versions: [%s]
`, plural, plural, strings.ToLower(kind), kind, strings.Join(list, ", "))
}

func everywhere(name, apiVersion, kind, object string) string {
	return fmt.Sprintf(`
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: %s}
spec: {resourceSelectors: [{apiVersion: %s, kind: %s%s}]}
`, name, apiVersion, kind, object)
}

// Versions that only a member has stay; a definition that holds objects of others
// stays where it does.
func TestDefinitionIsAdditive(t *testing.T) {
	hub, m1, m2 := world.System.Kubeconfig(), world.Member("m1").Kubeconfig(), world.Member("m2").Kubeconfig()
	kubectl(t, definition("gears", "Gear", "v1")+"---"+everywhere("gears", "apiextensions.k8s.io/v1", "CustomResourceDefinition", ", name: gears.example.com"), "apply", "-f", "-")
	names := []string{"get", "crd", "gears.example.com", "-o", "jsonpath={.spec.versions[*].name}"}
	comesTo(t, m1, "v1", names...)
	comesTo(t, m2, "v1", names...)
	if res := in(t, "m1", "", "patch", "crd", "gears.example.com", "--type=json", "-p",
		`[{"op":"add","path":"/spec/versions/-","value":{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}]`); res.Code != 0 {
		t.Fatal(res.Err)
	}
	kubectl(t, definition("gears", "Gear", "v2", "v1"), "apply", "-f", "-")
	comesTo(t, m2, "v2 v1", names...)
	comesTo(t, m1, "v2 v1 v1beta1", names...)
	comesTo(t, m1, "v1 v2", "get", "crd", "gears.example.com", "-o", "jsonpath={.status.storedVersions[*]}")

	// An object that a user of m2 has made there.
	ns := labtest.Namespace(t, hub)
	comesTo(t, m2, ns, "get", "namespace", ns, "-o", "jsonpath={.metadata.name}")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		if res := in(t, "m2", "{apiVersion: example.com/v2, kind: Gear, metadata: {name: private}}", "-n", ns, "apply", "-f", "-"); res.Code != 0 {
			return fmt.Errorf("%s", res.Err)
		}
		return nil
	})
	kubectl(t, "", "delete", "crd", "gears.example.com", "--timeout=150s")
	comesTo(t, m1, "", "get", "crd", "gears.example.com", "--ignore-not-found", "-o", "name")
	comesTo(t, m2, "", "get", "crd", "gears.example.com", "-o", `jsonpath={.metadata.labels.isthmus\.dev/managed}`)
	if res := in(t, "m2", "", "-n", ns, "get", "gear", "private", "-o", "name"); res.Code != 0 {
		t.Errorf("the user's object: %+v", res)
	}
}

// What a member lacks is said in words, and nothing goes there.
func TestSkew(t *testing.T) {
	hub := world.System.Kubeconfig()
	if res := in(t, "m1", definition("cogs", "Cog", "v1"), "apply", "-f", "-"); res.Code != 0 {
		t.Fatal(res.Err)
	}
	kubectl(t, definition("cogs", "Cog", "v2", "v1")+"---"+everywhere("cogs", "example.com/v2", "Cog", ""), "apply", "-f", "-")
	ns := labtest.Namespace(t, hub)
	// The members' lists are looked at now and then.
	comesTo(t, hub, "Cog", "get", "cluster", "m1", "-o", `jsonpath={.status.apiEnablements[?(@.groupVersion=="example.com/v1")].resources[?(@.kind=="Cog")].kind}`)
	applied(t, "{apiVersion: example.com/v2, kind: Cog, metadata: {name: x}}", "-n", ns)
	const want = "1 lacks CRD cogs.example.com, 1 lacks version v2 of cogs.example.com (it serves v1)"
	labtest.Eventually(t, 90*time.Second, func(context.Context) error {
		said := labtest.Kubectl(t, hub, "", "-n", ns, "get", "rb", "x-cog", "-o", `jsonpath={.status.conditions[?(@.type=="Scheduled")].message}`)
		if !strings.Contains(said.Out, want) || !strings.HasPrefix(said.Out, "0/2 clusters") {
			return fmt.Errorf("condition: %q %s", said.Out, said.Err)
		}
		events := labtest.Kubectl(t, hub, "", "-n", ns, "get", "events", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}")
		if !strings.Contains(events.Out, want) {
			return fmt.Errorf("Events: %q %s", events.Out, events.Err)
		}
		return nil
	})
	said := explained(t, "cog/x", "-n", ns)
	for _, want := range []string{"m1  excluded: lacks version v2 of cogs.example.com (it serves v1)", "m2  excluded: lacks CRD cogs.example.com"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
}
