package interpretation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	argoMarks = `annotations: {argocd.argoproj.io/tracking-id: "shop:v1/x:NS/x"}, labels: {argocd.argoproj.io/instance: shop, app.kubernetes.io/instance: shop, tier: web}`
	fluxMarks = `labels: {kustomize.toolkit.fluxcd.io/name: shop, kustomize.toolkit.fluxcd.io/namespace: flux-system, tier: web}`
)

// shop is what a repository holds.
func shop(ns, marks string) string {
	return strings.NewReplacer("MARKS", marks, "NS", ns).Replace(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: shop, namespace: NS, MARKS}, data: {a: b}}
---
{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: NS, MARKS}, spec: {selector: {app: shop}, ports: [{port: 80}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: NS, MARKS}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: "registry.example.com/shop:1", resources: {requests: {cpu: 10m}}}]}
`)
}

// The ways in which GitOps tools apply leave everything as it is, however often;
// what they mark their objects with stays at the endpoint, so that a tool that
// works on a member finds nothing of its own there; what they prune goes.
func TestGitOps(t *testing.T) {
	hub := world.System.Kubeconfig()
	for name, c := range map[string]struct {
		marks, selector string
		sync            []string
		// kinds that the tool replaces as a whole; the others are applied so.
		only string
	}{
		"argo, client-side":  {argoMarks, "argocd.argoproj.io/instance=shop", []string{"apply", "--field-manager=argocd-controller"}, ""},
		"argo, server-side":  {argoMarks, "argocd.argoproj.io/instance=shop", []string{"apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"}, ""},
		"argo, full replace": {argoMarks, "argocd.argoproj.io/instance=shop", []string{"replace", "--field-manager=argocd-controller"}, "Deployment"},
		"flux":               {fluxMarks, "kustomize.toolkit.fluxcd.io/name=shop,kustomize.toolkit.fluxcd.io/namespace=flux-system", []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := labtest.Namespace(t, hub)
			manifest := shop(ns, c.marks)
			create := c.sync
			if c.only != "" {
				create = []string{"create", "--field-manager=argocd-controller"}
			}
			kubectl(t, manifest, append(create, "-f", "-")...)
			for _, member := range []string{"m1", "m2"} {
				comesTo(t, world.Member(member).Kubeconfig(), "b", "-n", ns, "get", "configmap", "shop", "-o", "jsonpath={.data.a}")
			}
			kubectl(t, "", "-n", ns, "rollout", "status", "deployment/shop", "--timeout=150s")
			rest := atRest(t, ns)
			if c.only != "" { // a replaced Deployment loses the revision that its controller has written, on any cluster
				manifest = strings.Join(strings.Split(manifest, "---\n")[:2], "---\n")
			}
			for range 8 {
				kubectl(t, manifest, append(c.sync, "-f", "-")...)
			}
			time.Sleep(3 * time.Second)
			if now := versions(t, ns); now != rest {
				t.Errorf("the syncs have changed something:\n%s\nbefore:\n%s", now, rest)
			}
			for _, member := range []string{"m1", "m2"} {
				if res := in(t, member, "", "-n", ns, "get", "deployments,configmaps,services", "-l", c.selector, "-o", "name"); res.Out != "" || res.Code != 0 {
					t.Errorf("%s: a tool would find %s%s", member, res.Out, res.Err)
				}
				said := in(t, member, "", "-n", ns, "get", "deployment,configmap,service", "-l", "tier=web", "-o", "yaml")
				if strings.Count(said.Out, "tier: web") < 3 || strings.Contains(said.Out, "tracking-id") {
					t.Errorf("%s: labels of the users, and no marks of tools: %s", member, said.Out)
				}
			}
			kubectl(t, "", "-n", ns, "delete", "configmaps,services", "-l", c.selector)
			for _, member := range []string{"m1", "m2"} {
				comesTo(t, world.Member(member).Kubeconfig(), "deployment.apps/shop", "-n", ns, "get", "deployments,configmaps,services", "-l", "tier=web", "-o", "name")
			}
		})
	}
}

// versions of the objects of the repository, everywhere.
func versions(t *testing.T, ns string) string {
	t.Helper()
	var b strings.Builder
	for _, kubeconfig := range []string{world.System.Kubeconfig(), world.Member("m1").Kubeconfig(), world.Member("m2").Kubeconfig()} {
		res := labtest.Kubectl(t, kubeconfig, "", "-n", ns, "get", "configmap/shop", "service/shop", "deployment/shop",
			"-o", "jsonpath={range .items[*]}{.kind} {.metadata.resourceVersion} {end}")
		fmt.Fprintln(&b, res.Out, res.Err)
	}
	return b.String()
}

// atRest waits until nothing changes any more.
func atRest(t *testing.T, ns string) string {
	t.Helper()
	var was string
	labtest.Eventually(t, 90*time.Second, func(context.Context) error {
		now := versions(t, ns)
		if now == was {
			return nil
		}
		was = now
		time.Sleep(12 * time.Second) // statuses are written every ten
		return fmt.Errorf("not at rest: %s", now)
	})
	return was
}
