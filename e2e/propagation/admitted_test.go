package propagation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	privileged = `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: privileged}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - targetCluster: {clusterNames: [m2]}
    overriders: {plaintext: [{path: /spec/template/spec/containers/0/securityContext, operator: add, value: {privileged: true}}]}
`
	elsewhere = `
apiVersion: policy.karmada.io/v1alpha1
kind: OverridePolicy
metadata: {name: elsewhere}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - overriders: {imageOverrider: [{component: Registry, operator: replace, value: %s}]}
`
	onlyOurs = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  validations:
  - expression: "object.spec.template.spec.containers.all(c, !c.image.startsWith('evil.'))"
    message: images come from elsewhere
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`
)

// An override can do no more than who writes the template could: what it makes of
// it passes the control plane's admission, or the former copy goes on.
func TestOverridesPassAdmission(t *testing.T) {
	ns := labtest.Namespace(t, world.System.Kubeconfig())
	kubectl(t, "", "label", "namespace", ns, "pod-security.kubernetes.io/enforce=baseline")
	kubectl(t, fmt.Sprintf(onlyOurs, ns), "apply", "-f", "-")
	t.Cleanup(func() {
		kubectl(t, "", "delete", "validatingadmissionpolicybinding/"+ns, "validatingadmissionpolicy/"+ns)
	})
	kubectl(t, divided(1, 1, 0), "-n", ns, "apply", "-f", "-")
	kubectl(t, deployment(2, "{maxSurge: 1, maxUnavailable: 1}"), "-n", ns, "apply", "-f", "-")
	kubectl(t, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout", "90s")

	problem := func() string {
		return kubectl(t, "", "-n", ns, "get", "resourcebinding", "web-deployment", "-o", `jsonpath={.status.conditions[?(@.type=="FullyApplied")].message}`)
	}
	await := func(parts ...string) {
		t.Helper()
		labtest.Eventually(t, 60*time.Second, func(context.Context) error {
			got := problem()
			for _, p := range parts {
				if !strings.Contains(got, p) {
					return fmt.Errorf("FullyApplied: %q, want %q in it", got, p)
				}
			}
			if len(parts) == 0 && got != "" {
				return fmt.Errorf("FullyApplied: %q", got)
			}
			return nil
		})
	}
	image := func(cluster, want string) {
		t.Helper()
		d, err := members(t)[cluster].AppsV1().Deployments(ns).Get(t.Context(), "web", getNow)
		if err != nil {
			t.Fatal(err)
		}
		c := d.Spec.Template.Spec.Containers[0]
		if c.Image != want || c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
			t.Errorf("%s runs %s, %+v", cluster, c.Image, c.SecurityContext)
		}
	}
	kubectl(t, privileged, "-n", ns, "apply", "-f", "-")
	await("m2: the control plane does not admit", "violates PodSecurity", "privileged")
	image("m1", "registry.example.com/web:1")
	image("m2", "registry.example.com/web:1")
	// Replicas go on.
	kubectl(t, "", "-n", ns, "scale", "deployment/web", "--replicas", "4")
	labtest.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		d, err := members(t)["m2"].AppsV1().Deployments(ns).Get(ctx, "web", getNow)
		if err == nil && *d.Spec.Replicas != 2 {
			err = fmt.Errorf("m2 has %d replicas", *d.Spec.Replicas)
		}
		return err
	})
	kubectl(t, "", "-n", ns, "delete", "overridepolicy", "privileged")
	await()

	kubectl(t, fmt.Sprintf(elsewhere, "evil.example.com"), "-n", ns, "apply", "-f", "-")
	await("m1: the control plane does not admit", "images come from elsewhere")
	image("m1", "registry.example.com/web:1")
	kubectl(t, fmt.Sprintf(elsewhere, "mirror.example.com"), "-n", ns, "apply", "-f", "-")
	await()
	image("m1", "mirror.example.com/web:1")
	image("m2", "mirror.example.com/web:1")
}
