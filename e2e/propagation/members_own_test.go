package propagation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// A label of a namespace that a member's people have set stays until the
// template speaks of the key.
func TestNamespaceLabelsOfAMember(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	holds := func(want string) {
		t.Helper()
		labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
			n, err := labtest.Client(t, world.Member("m1")).CoreV1().Namespaces().Get(ctx, ns, getNow)
			if err != nil {
				return err
			}
			if got := n.Labels["injection"] + "," + n.Labels["team"] + "," + n.Labels["pod-security.kubernetes.io/warn"]; got != want {
				return fmt.Errorf("labels %v, want %s", n.Labels, want)
			}
			return nil
		})
	}
	holds(",,")
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "label", "namespace", ns, "injection=enabled", "pod-security.kubernetes.io/warn=baseline")
	kubectl(t, "", "label", "namespace", ns, "team=x")
	holds("enabled,x,baseline")
	kubectl(t, "", "label", "namespace", ns, "injection=disabled")
	holds("disabled,x,baseline")
	kubectl(t, "", "label", "namespace", ns, "injection-")
	holds(",x,baseline")
}

const finalized = `
apiVersion: v1
kind: ConfigMap
metadata: {name: c, finalizers: [example.com/endpoint]}
data: {a: b}
`

// Finalizers stay where they are; a copy that is held in a member holds the
// template, which says where.
func TestFinalizersOfBothSides(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	direct := members(t)
	kubectl(t, finalized, "-n", ns, "apply", "-f", "-")
	inMember := func(name, value string, finalizers ...string) {
		t.Helper()
		labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
			c, err := direct[name].CoreV1().ConfigMaps(ns).Get(ctx, "c", getNow)
			if err == nil && (c.Data["a"] != value || !slices.Equal(c.Finalizers, finalizers)) {
				err = fmt.Errorf("in %s: %v, finalizers %v", name, c.Data, c.Finalizers)
			}
			return err
		})
	}
	inMember("m1", "b")
	inMember("m2", "b")
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "-n", ns, "patch", "configmap", "c", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/member"]}}`)
	kubectl(t, "", "-n", ns, "patch", "configmap", "c", "--type=merge", "-p", `{"data":{"a":"c"}}`)
	inMember("m1", "c", "example.com/member")
	inMember("m2", "c")

	kubectl(t, "", "-n", ns, "delete", "configmap", "c", "--wait=false")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if _, err := direct["m2"].CoreV1().ConfigMaps(ns).Get(ctx, "c", getNow); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the copy in m2: %v", err)
		}
		if c, err := direct["m1"].CoreV1().ConfigMaps(ns).Get(ctx, "c", getNow); err != nil || c.DeletionTimestamp == nil {
			return fmt.Errorf("the copy in m1 is not being deleted (%v)", err)
		}
		return nil
	})
	eventually(t, ns, "resourcebinding/c-configmap", `{.status.conditions[?(@.type=="FullyApplied")].message}`,
		"m1: the copy is being deleted and has the finalizers example.com/member")
	if got := get(t, ns, "configmap/c", `{.metadata.finalizers}`); !strings.Contains(got, "isthmus.dev/propagation") {
		t.Errorf("the template went before the copy in m1: %s", got)
	}
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "-n", ns, "patch", "configmap", "c", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	eventually(t, ns, "configmap/c", `{.metadata.finalizers}`, `["example.com/endpoint"]`)
	kubectl(t, "", "-n", ns, "patch", "configmap", "c", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	eventually(t, ns, "configmap/c", "{.metadata.name}", "")
}

const injecting = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
          Object.spec.template.spec.containers{name: "proxy", image: "registry.example.com/proxy:1"},
          Object.spec.template.spec.containers{name: "web", env: [Object.spec.template.spec.containers.env{name: "INJECTED", value: "yes"}]}
        ]}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`

// mutateIn gives a member mutating policies for a namespace and waits until they
// act, by what is at path of a probe.
func mutateIn(t *testing.T, m *lab.Member, ns, policies, probe, path string, acts func(string) bool) {
	t.Helper()
	policies = strings.ReplaceAll(policies, "NAME", ns)
	labtest.MustKubectl(t, m.Kubeconfig(), policies, "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, m.Kubeconfig(), policies, "delete", "-f", "-") })
	labtest.Eventually(t, 40*time.Second, func(context.Context) error {
		res := labtest.Kubectl(t, m.Kubeconfig(), probe, "-n", ns, "create", "--dry-run=server", "-f", "-", "-o", "jsonpath="+path)
		if !acts(res.Out) {
			return fmt.Errorf("the policy does not act yet: %s%s", res.Out, res.Err)
		}
		return nil
	})
}

// What a member's admission adds to a copy stays, and is not fought.
func TestInjectedContainers(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	m1 := world.Member("m1")
	mutateIn(t, m1, ns, injecting, app("probe", "", "10m", 0), "{.spec.template.spec.containers[*].name}",
		func(names string) bool { return strings.Contains(names, "proxy") })
	kubectl(t, policyOver("  placement: {clusterAffinity: {clusterNames: [m1]}}\n"), "-n", ns, "apply", "-f", "-")
	kubectl(t, app("web", "", "10m", 2), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	const path = `{range .spec.template.spec.containers[?(@.name=="web")]}{.image} {.env[*].name} {end}{.spec.template.spec.containers[?(@.name=="proxy")].image} {.metadata.generation}`
	inM1 := func() string {
		return labtest.MustKubectl(t, m1.Kubeconfig(), "", "-n", ns, "get", "deployment", "web", "-o", "jsonpath="+path)
	}
	if got := inM1(); got != "registry.example.com/web:1 INJECTED registry.example.com/proxy:1 1" {
		t.Fatalf("m1 has %q", got)
	}
	log := labtest.MemberAudit(t, m1)
	kubectl(t, "", "-n", ns, "set", "image", "deployment/web", "web=registry.example.com/web:2")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=150s")
	time.Sleep(5 * time.Second) // a fight would go on
	if got := inM1(); got != "registry.example.com/web:2 INJECTED registry.example.com/proxy:1 2" {
		t.Errorf("after one change of the image m1 has %q", got)
	}
	writes := 0
	for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
		if a.ObjectRef.Namespace == ns && a.ObjectRef.Resource == "deployments" {
			writes++
		}
	}
	if writes < 1 || writes > 2 { // the replicas may change hands first
		t.Errorf("%d writes for one change", writes)
	}
	if got := get(t, ns, "deployment/web", "{.status.readyReplicas} {.status.observedGeneration}/{.metadata.generation}"); got != "2 2/2" {
		t.Errorf("status %q", got)
	}
}

const rewriting = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  matchConditions: [{name: rewritten, expression: 'object.metadata.name == "rewritten"'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/data/a", value: "of the member"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`

// A value that a member's admission always replaces is not written over and
// over.
func TestRewrittenValues(t *testing.T) {
	t.Parallel()
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	m1 := world.Member("m1")
	mutateIn(t, m1, ns, rewriting, `{apiVersion: v1, kind: ConfigMap, metadata: {name: rewritten}, data: {a: x}}`, "{.data.a}",
		func(value string) bool { return value == "of the member" })
	log := labtest.MemberAudit(t, m1)
	kubectl(t, "", "-n", ns, "create", "configmap", "rewritten", "--from-literal=a=b")
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := labtest.Client(t, m1).CoreV1().ConfigMaps(ns).Get(ctx, "rewritten", getNow)
		return err
	})
	time.Sleep(15 * time.Second) // a fight would go on
	writes := 0
	for _, a := range labtest.WritesBy(labtest.ApplyUser, log.Read(t)) {
		if a.ObjectRef.Namespace == ns && a.ObjectRef.Name == "rewritten" {
			writes++
		}
	}
	if writes < 1 || writes > 6 {
		t.Errorf("%d writes of a value that admission replaces", writes)
	}
	t.Logf("%d writes; the binding says %s", writes, get(t, ns, "resourcebinding/rewritten-configmap", "{.status.conditions}"))
}

const claims = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: NAME}
provisioner: kubernetes.io/no-provisioner
allowVolumeExpansion: true
`

const volume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: NAME}
spec:
  storageClassName: NAME
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /tmp/NAME}
`

const claim = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: data}
spec:
  resourceSelectors: [{apiVersion: v1, kind: PersistentVolumeClaim}]
  placement: {clusterAffinity: {clusterNames: [m1]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: NAME, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// A claim that a member has bound keeps its volume, and grows by the endpoint.
func TestClaimThatIsBound(t *testing.T) {
	t.Parallel()
	endpoint, m1 := world.System.Kubeconfig(), world.Member("m1")
	ns := labtest.Namespace(t, endpoint)
	named := func(doc string) string { return strings.ReplaceAll(doc, "NAME", ns) }
	for _, kubeconfig := range []string{endpoint, m1.Kubeconfig()} {
		labtest.MustKubectl(t, kubeconfig, named(claims), "apply", "-f", "-")
		t.Cleanup(func() { labtest.Kubectl(t, kubeconfig, "", "delete", "storageclass", ns, "--wait=false") })
	}
	labtest.MustKubectl(t, m1.Kubeconfig(), named(volume), "apply", "-f", "-")
	t.Cleanup(func() { labtest.Kubectl(t, m1.Kubeconfig(), "", "delete", "persistentvolume", ns, "--wait=false") })
	kubectl(t, named(claim), "-n", ns, "apply", "-f", "-")
	eventually(t, ns, "persistentvolumeclaim/data", "{.status.phase} {.status.capacity.storage}", "Bound 5Gi")
	kubectl(t, "", "-n", ns, "patch", "persistentvolumeclaim", "data", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		c, err := labtest.Client(t, m1).CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data", getNow)
		if err != nil {
			return err
		}
		request := c.Spec.Resources.Requests[corev1.ResourceStorage]
		if request.String() != "2Gi" || c.Spec.VolumeName != ns || c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" || !slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") {
			return fmt.Errorf("m1 has %s of %q, %v, %v", request.String(), c.Spec.VolumeName, c.Annotations, c.Finalizers)
		}
		return nil
	})
	eventually(t, ns, "persistentvolumeclaim/data", "{.status.phase}", "Bound")
	if events := kubectl(t, "", "-n", ns, "get", "events", "--field-selector=type=Warning,involvedObject.name=data"); strings.Contains(events, "SyncWorkFailed") {
		t.Errorf("it was refused at times:\n%s", events)
	}
}

const classes = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: going.NAME, finalizers: [example.com/endpoint]}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: owner.NAME}
provisioner: kubernetes.io/no-provisioner
`

const ownedClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: owned.NAME
  ownerReferences: [{apiVersion: storage.k8s.io/v1, kind: StorageClass, name: owner.NAME, uid: UID}]
provisioner: kubernetes.io/no-provisioner
---
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: NAME}
spec:
  resourceSelectors:
  - {apiVersion: storage.k8s.io/v1, kind: StorageClass, name: going.NAME}
  - {apiVersion: storage.k8s.io/v1, kind: StorageClass, name: owned.NAME}
  placement: {clusterAffinity: {clusterNames: [m1]}}
`

// Owners, which a member would look for in vain, stay behind, and so does what
// is being deleted when a policy comes to select it.
func TestOwnersAndTheDyingStayBehind(t *testing.T) {
	t.Parallel()
	name := labtest.UniqueName(t, "classes")
	named := func(doc string) string { return strings.ReplaceAll(doc, "NAME", name) }
	kubectl(t, named(classes), "apply", "-f", "-")
	t.Cleanup(func() {
		kubectl(t, "", "patch", "storageclass", "going."+name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "storageclass", "owner."+name, "owned."+name, "--ignore-not-found", "--wait=false")
		kubectl(t, "", "delete", "clusterpropagationpolicy", name)
	})
	kubectl(t, "", "delete", "storageclass", "going."+name, "--wait=false")
	uid := strings.TrimSpace(kubectl(t, "", "get", "storageclass", "owner."+name, "-o", "jsonpath={.metadata.uid}"))
	kubectl(t, strings.ReplaceAll(named(ownedClass), "UID", uid), "apply", "-f", "-")
	there := members(t)["m1"].StorageV1().StorageClasses()
	labtest.Eventually(t, 40*time.Second, func(ctx context.Context) error {
		d, err := there.Get(ctx, "owned."+name, getNow)
		if err == nil && len(d.OwnerReferences) > 0 {
			t.Errorf("the copy has the owners %v", d.OwnerReferences)
		}
		return err
	})
	time.Sleep(2 * time.Second) // the other would be there by now, and an orphan would be collected
	if _, err := there.Get(t.Context(), "owned."+name, getNow); err != nil {
		t.Errorf("the copy did not stay: %v", err)
	}
	if _, err := there.Get(t.Context(), "going."+name, getNow); !apierrors.IsNotFound(err) {
		t.Errorf("what is being deleted has come to m1: %v", err)
	}
}
