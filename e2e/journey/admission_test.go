package journey

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// forbidding holds in one namespace: no Pod may have the label forbidden, and
// nobody may exec into one called sealed.
const forbidding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME-writes}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  validations: [{expression: "!('forbidden' in object.metadata.?labels.orValue({}))", message: "the label is forbidden here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME-exec}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}]
  validations: [{expression: "!request.name.startsWith('sealed')", message: "this Pod is sealed"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME-writes}
spec: {policyName: NAME-writes, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME-exec}
spec: {policyName: NAME-exec, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}}}
`

// A policy of the control plane holds for what is routed to members. It is
// cluster-wide, so nothing else runs meanwhile.
func TestRoutedAdmission(t *testing.T) {
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	runPod(t, endpoint, ns, "web")
	runPod(t, endpoint, ns, "sealed")
	manifest := strings.ReplaceAll(forbidding, "NAME", ns)
	labtest.MustKubectl(t, endpoint, manifest, "apply", "-f", "-")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		labtest.Run(ctx, t, endpoint, manifest, world.plain.Artifacts().Path("kubectl"), "delete", "-f", "-", "--wait=false")
	})
	pods := labtest.Client(t, world.System).CoreV1().Pods(ns)
	create := func(ctx context.Context, dryRun ...string) error {
		pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.ObjectMeta = metav1.ObjectMeta{Name: "bad", Labels: map[string]string{"forbidden": "x"}}
		pod.Spec.NodeName = ""
		_, err = pods.Create(ctx, pod, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	// A policy acts some time after it was written.
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		if err := create(ctx, metav1.DryRunAll); !refused(err) {
			return fmt.Errorf("the policy does not act: %w", err)
		}
		return nil
	})
	labtest.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		return wantRefused("exec", shell{ns, "sealed", webSocket}.exec(ctx, nil, io.Discard, io.Discard, "true"))
	})
	pod, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Labels["forbidden"] = "x"
	_, update := pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	patch := func(kind types.PatchType, body string, options metav1.PatchOptions) error {
		_, err := pods.Patch(t.Context(), "web", kind, []byte(body), options)
		return err
	}
	labels := `{"metadata":{"labels":{"forbidden":"x"}}}`
	for name, err := range map[string]error{
		"POST":            create(t.Context()),
		"PUT":             update,
		"merge patch":     patch(types.MergePatchType, labels, metav1.PatchOptions{}),
		"strategic patch": patch(types.StrategicMergePatchType, labels, metav1.PatchOptions{}),
		"JSON patch":      patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/forbidden","value":"x"}]`, metav1.PatchOptions{}),
		"apply": patch(types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"forbidden":"x"}}}`,
			metav1.PatchOptions{FieldManager: "journey"}),
		"exec over SPDY": shell{ns, "sealed", spdy}.exec(t.Context(), nil, io.Discard, io.Discard, "true"),
	} {
		if err := wantRefused(name, err); err != nil {
			t.Error(err)
		}
	}
	if err := (shell{ns, "web", webSocket}).exec(t.Context(), nil, io.Discard, io.Discard, "true"); err != nil {
		t.Errorf("exec into a Pod that no policy seals: %v", err)
	}
	if err := patch(types.MergePatchType, `{"metadata":{"labels":{"allowed":"x"}}}`, metav1.PatchOptions{}); err != nil {
		t.Errorf("a write that no policy forbids: %v", err)
	}
}

func refused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "the label is forbidden here") || strings.Contains(err.Error(), "this Pod is sealed"))
}

func wantRefused(what string, err error) error {
	if !refused(err) {
		return fmt.Errorf("%s: %v, want the policy's refusal", what, err)
	}
	return nil
}

// The cluster label is the endpoint's: no template may hold it.
func TestReservedLabel(t *testing.T) {
	t.Parallel()
	endpoint := world.System.Kubeconfig()
	ns := labtest.Namespace(t, endpoint)
	for name, change := range map[string][2]string{
		"template": {"metadata: {labels: {app: web}}\n    spec", "metadata: {labels: {app: web, isthmus.dev/cluster: m1}}\n    spec"},
		"object":   {"metadata: {name: web, labels: {app: web}}", "metadata: {name: web, labels: {app: web, isthmus.dev/cluster: m1}}"},
	} {
		manifest := strings.Replace(webDeployment, change[0], change[1], 1)
		if manifest == webDeployment {
			t.Fatalf("%s: nothing to replace", name)
		}
		res := labtest.Kubectl(t, endpoint, manifest, "-n", ns, "create", "-f", "-")
		if res.Code == 0 || !strings.Contains(res.Err, "is invalid") || !strings.Contains(res.Err, "isthmus.dev/cluster") {
			t.Errorf("label in the %s: exit %d, %s", name, res.Code, res.Err)
		}
	}
	_, err := labtest.Client(t, world.System).AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a Deployment is there: %v", err)
	}
}
