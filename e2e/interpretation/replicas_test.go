package interpretation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// foos is a kind of a user, in both clusters, divided 1:2.
const foos = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  names: {kind: Foo, plural: foos, singular: foo}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              tier: {type: string}
              settings: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: foos}
spec:
  resourceSelectors:
  - {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: foos.example.com}
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: foo}
spec:
  propagateDeps: true
  resourceSelectors: [{apiVersion: example.com/v1, kind: Foo}]
  placement:
    clusterAffinity: {clusterNames: [m1, m2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [m1]}, weight: 1}
        - {targetCluster: {clusterNames: [m2]}, weight: 2}
`

const foosExplained = `
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: foos}
spec:
  target: {apiVersion: example.com/v1, kind: Foo}
  customizations:
    replicaResource:
      luaScript: |
        function GetReplicas(desiredObj)
          return desiredObj.spec.size, {resourceRequest = {cpu = "10m"}}
        end
    replicaRevision:
      luaScript: |
        function ReviseReplica(desiredObj, desiredReplica)
          desiredObj.spec.size = desiredReplica
          return desiredObj
        end
    retention:
      luaScript: |
        function Retain(desiredObj, observedObj)
          if observedObj.spec.tier ~= nil then
            desiredObj.spec.tier = observedObj.spec.tier
          end
          return desiredObj
        end
    statusReflection:
      luaScript: |
        function ReflectStatus(observedObj)
          if observedObj.status == nil then
            return nil
          end
          return {
            ready = observedObj.status.ready,
            generation = observedObj.metadata.generation,
            observedGeneration = observedObj.status.observedGeneration,
            template = tonumber((observedObj.metadata.annotations or {})["resourcetemplate.karmada.io/generation"]),
          }
        end
    statusAggregation:
      luaScript: |
        function AggregateStatus(desiredObj, statusItems)
          local ready, current = 0, 0
          for i = 1, #statusItems do
            local s = statusItems[i].status
            if s ~= nil then
              ready = ready + (s.ready or 0)
              if s.template == desiredObj.metadata.generation and s.generation == s.observedGeneration then
                current = current + 1
              end
            end
          end
          desiredObj.status = desiredObj.status or {}
          desiredObj.status.ready = ready
          if current == #statusItems then
            desiredObj.status.observedGeneration = desiredObj.metadata.generation
          end
          return desiredObj
        end
    healthInterpretation:
      luaScript: |
        function InterpretHealth(observedObj)
          return observedObj.status ~= nil and observedObj.status.ready == observedObj.spec.size
        end
    dependencyInterpretation:
      luaScript: |
        function GetDependencies(desiredObj)
          if desiredObj.spec.settings == nil then
            return {}
          end
          return {
            {apiVersion = "v1", kind = "ConfigMap", namespace = desiredObj.metadata.namespace, name = desiredObj.spec.settings},
            {apiVersion = "v1", kind = "ConfigMap", namespace = desiredObj.metadata.namespace, labelSelector = {matchLabels = {["for"] = desiredObj.metadata.name}}},
          }
        end
`

// A kind that nobody knows but its users is divided, kept in part, summed up and
// watched over as they say.
func TestCustomKind(t *testing.T) {
	hub := world.System.Kubeconfig()
	m1, m2 := world.Member("m1").Kubeconfig(), world.Member("m2").Kubeconfig()
	kubectl(t, foos, "apply", "-f", "-")
	kubectl(t, foosExplained, "apply", "-f", "-")
	ns := labtest.Namespace(t, hub)
	// Nothing follows a ConfigMap but its own policy: none goes to m1 and m2.
	applied(t, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: nowhere}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [none]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: named}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: selected, labels: {for: x}}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}
`, "-n", ns)
	applied(t, "{apiVersion: example.com/v1, kind: Foo, metadata: {name: x}, spec: {size: 6, settings: named}}", "-n", ns)

	size := []string{"-n", ns, "get", "foo", "x", "-o", "jsonpath={.spec.size}"}
	comesTo(t, m1, "2", size...)
	comesTo(t, m2, "4", size...)
	comesTo(t, hub, `[{"name":"m1","replicas":2},{"name":"m2","replicas":4}]`, "-n", ns, "get", "rb", "x-foo", "-o", "jsonpath={.spec.clusters}")
	for _, name := range []string{"named", "selected"} {
		comesTo(t, m2, "b", "-n", ns, "get", "configmap", name, "-o", "jsonpath={.data.a}")
	}
	if res := in(t, "m2", "", "-n", ns, "get", "configmap", "other"); res.Code == 0 {
		t.Error("a ConfigMap that nothing needs has followed")
	}
	kubectl(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: late, labels: {for: x}}, data: {a: b}}", "-n", ns, "apply", "-f", "-")
	comesTo(t, m1, "b", "-n", ns, "get", "configmap", "late", "-o", "jsonpath={.data.a}")

	report(t, ns, "m1", 2)
	comesTo(t, hub, "2", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.status.ready}")
	health := []string{"-n", ns, "get", "rb", "x-foo", "-o", "jsonpath={range .status.aggregatedStatus[*]}{.clusterName}={.health},{.applied};{end}"}
	comesTo(t, hub, "m1=Healthy,true;m2=Unhealthy,true;", health...)
	report(t, ns, "m2", 4)
	comesTo(t, hub, "6 1", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.status.ready} {.status.observedGeneration}")
	comesTo(t, hub, "m1=Healthy,true;m2=Healthy,true;", health...)

	kubectl(t, "", "-n", ns, "patch", "foo", "x", "--type=merge", "-p", `{"spec":{"size":3}}`)
	comesTo(t, m1, "1", size...)
	comesTo(t, m2, "2", size...)
	comesTo(t, hub, "6 1", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.status.ready} {.status.observedGeneration}")
	report(t, ns, "m1", 1)
	report(t, ns, "m2", 2)
	comesTo(t, hub, "3 2", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.status.ready} {.status.observedGeneration}")
	retained(t, ns)
}

// report plays the member's controller.
func report(t *testing.T, ns, member string, ready int) {
	t.Helper()
	generation := in(t, member, "", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.metadata.generation}").Out
	if res := in(t, member, "", "-n", ns, "patch", "foo", "x", "--subresource=status", "--type=merge",
		"-p", fmt.Sprintf(`{"status":{"ready":%d,"observedGeneration":%s}}`, ready, generation)); res.Code != 0 {
		t.Fatal(res.Err)
	}
}

// retained: what the member sets stays, however often the template changes, and
// nobody writes without a reason.
func retained(t *testing.T, ns string) {
	t.Helper()
	hub, m1 := world.System.Kubeconfig(), world.Member("m1").Kubeconfig()
	kubectl(t, "", "-n", ns, "patch", "foo", "x", "--type=merge", "-p", `{"spec":{"tier":"bronze"}}`)
	comesTo(t, m1, "bronze", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.spec.tier}")
	if res := in(t, "m1", "", "-n", ns, "patch", "foo", "x", "--field-manager=tuner", "--type=merge", "-p", `{"spec":{"tier":"gold"}}`); res.Code != 0 {
		t.Fatal(res.Err)
	}
	kubectl(t, "", "-n", ns, "patch", "foo", "x", "--type=merge", "-p", `{"spec":{"size":4,"tier":"silver"}}`)
	comesTo(t, hub, `[{"name":"m1","replicas":1},{"name":"m2","replicas":3}]`, "-n", ns, "get", "rb", "x-foo", "-o", "jsonpath={.spec.clusters}")
	comesTo(t, world.Member("m2").Kubeconfig(), "3", "-n", ns, "get", "foo", "x", "-o", "jsonpath={.spec.size}")
	version := []string{"-n", ns, "get", "foo", "x", "-o", "jsonpath={.spec.tier} {.metadata.resourceVersion}"}
	var was string
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		now := in(t, "m1", "", version...).Out
		defer func() { was = now }()
		if now != was || !strings.HasPrefix(now, "gold ") {
			time.Sleep(3 * time.Second)
			return fmt.Errorf("not at rest: %q after %q", now, was)
		}
		return nil
	})
}

// A script that fails is told on the template and on the binding, and what runs
// goes on as it was.
func TestFailingScript(t *testing.T) {
	hub := world.System.Kubeconfig()
	for name, c := range map[string]struct{ script, want string }{
		"syntax": {"function InterpretHealth(o)\n  return o.status.\nend", `spec.customizations.healthInterpretation.luaScript: Invalid value: line 3: syntax error near "end"`},
		"name":   {"function Health(o) return true end", "the script does not define function InterpretHealth"},
		"loop":   {"while true do end", "line 1: the script takes too many steps"},
	} {
		manifest := fmt.Sprintf(`{"apiVersion":"config.karmada.io/v1alpha1","kind":"ResourceInterpreterCustomization","metadata":{"name":"bad"},
"spec":{"target":{"apiVersion":"example.com/v1","kind":"Bar"},"customizations":{"healthInterpretation":{"luaScript":%q}}}}`, c.script)
		if res := labtest.Kubectl(t, hub, manifest, "apply", "-f", "-"); res.Code == 0 || !strings.Contains(res.Err, c.want) {
			t.Errorf("%s: %+v, want %s", name, res, c.want)
		}
	}
	ns := labtest.Namespace(t, hub)
	explained := strings.NewReplacer("name: foos", "name: bazs", "kind: Foo", "kind: Baz",
		"return desiredObj.spec.size,", "return desiredObj.spec.size + desiredObj.spec.offset,").Replace(foosExplained)
	kubectl(t, strings.ReplaceAll(strings.ReplaceAll(foos, "foo", "baz"), "Foo", "Baz"), "apply", "-f", "-")
	kubectl(t, explained, "apply", "-f", "-")
	applied(t, "{apiVersion: example.com/v1, kind: Baz, metadata: {name: bad}, spec: {size: 3}}", "-n", ns)
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		said := labtest.Kubectl(t, hub, "", "-n", ns, "get", "events", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}").Out
		if want := "GetReplicasFailed: GetReplicas of customization bazs: line 2: "; !strings.Contains(said, want) {
			return fmt.Errorf("Events: %s", said)
		}
		return nil
	})
	if res := in(t, "m1", "", "-n", ns, "get", "baz", "bad"); res.Code == 0 {
		t.Error("it was placed although its replicas cannot be counted")
	}
	kubectl(t, strings.Replace(explained, " + desiredObj.spec.offset", "", 1), "apply", "-f", "-")
	comesTo(t, world.Member("m2").Kubeconfig(), "2", "-n", ns, "get", "baz", "bad", "-o", "jsonpath={.spec.size}")
	// One that fails later is shown by a condition, and the copies stay.
	kubectl(t, strings.NewReplacer(" + desiredObj.spec.offset", "", "observedObj.status ~= nil and observedObj.status.ready", "observedObj.status.ready.now").Replace(explained), "apply", "-f", "-")
	labtest.Eventually(t, time.Minute, func(context.Context) error {
		said := labtest.Kubectl(t, hub, "", "-n", ns, "get", "rb", "bad-baz", "-o", `jsonpath={.status.conditions[?(@.type=="Interpreted")].message}`).Out
		if want := "m1: InterpretHealth of customization bazs: line 2: "; !strings.Contains(said, want) {
			return fmt.Errorf("condition: %q", said)
		}
		return nil
	})
	comesTo(t, world.Member("m1").Kubeconfig(), "1", "-n", ns, "get", "baz", "bad", "-o", "jsonpath={.spec.size}")
	kubectl(t, strings.Replace(explained, " + desiredObj.spec.offset", "", 1), "apply", "-f", "-")
	comesTo(t, hub, "", "-n", ns, "get", "rb", "bad-baz", "-o", `jsonpath={.status.conditions[?(@.type=="Interpreted")].message}`)
}
