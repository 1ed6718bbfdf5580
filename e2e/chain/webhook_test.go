package chain

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// hooks of one namespace: one leads to a Service that only a member can have,
// one to a URL.
const hooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME-service}
webhooks:
- name: service.example.com
  clientConfig: {service: {namespace: default, name: nowhere}}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME-url}
webhooks:
- name: url.example.com
  clientConfig: {url: "URL", caBundle: CABUNDLE}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.nowhere.example.com}
spec: {group: nowhere.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: default, name: nowhere}}
`

// What leads to an in-cluster Service does nothing in the control plane; a
// webhook with a URL decides.
func TestWebhookTargets(t *testing.T) {
	admin := world.System.Kubeconfig()
	ns := namespace(t)
	asked := make(chan string, 100)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.Error(w, "refused by the test", http.StatusForbidden)
	}))
	defer server.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	text := strings.NewReplacer("NAME", labtest.UniqueName(t, "hook"), "NS", ns, "URL", server.URL, "CABUNDLE", ca).Replace(hooks)
	labtest.MustKubectl(t, admin, text, "create", "-f", "-")
	defer labtest.MustKubectl(t, admin, text, "delete", "-f", "-")
	n := 0
	labtest.Eventually(t, 30*time.Second, func(context.Context) error {
		n++
		res := labtest.Kubectl(t, admin, "", "-n", ns, "create", "secret", "generic", fmt.Sprintf("s%d", n))
		if res.Code == 0 || !strings.Contains(res.Err, "url.example.com") {
			return fmt.Errorf("the webhook with a URL does not act: %+v", res)
		}
		return nil
	})
	if len(asked) == 0 {
		t.Error("the webhook was not asked")
	}
	// By now the other one would act as well.
	labtest.MustKubectl(t, admin, "", "-n", ns, "create", "configmap", "free")
	config := labtest.Config(t, world.System)
	if a := ask(t, config, "GET", "/apis/nowhere.example.com/v1/things", nil); a.code != http.StatusNotFound {
		t.Errorf("a group that only an in-cluster Service has: %s", a)
	}
	if a := ask(t, config, "GET", "/apis", nil, "Accept", aggregated); a.code != 200 || strings.Contains(string(a.body), `"Stale"`) {
		t.Errorf("discovery holds something stale")
	}
	out := labtest.MustKubectl(t, admin, "", "get", "apiservice", "v1.nowhere.example.com", "-o", "jsonpath={.spec.service.name}")
	if out != "nowhere" {
		t.Errorf("the stored APIService has the service %q", out)
	}
}
