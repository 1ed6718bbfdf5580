package journey

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.media.example.com}
spec:
  group: media.example.com
  names: {kind: Gadget, plural: gadgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// Custom resources in protobuf and other forms are answered as one cluster
// answers them.
func TestMediaTypesOfCustomResources(t *testing.T) {
	t.Parallel()
	answers := map[string]map[string]string{}
	for name, kubeconfig := range map[string]string{"plain": world.plain.Kubeconfig(), "endpoint": world.System.Kubeconfig()} {
		labtest.MustKubectl(t, kubeconfig, gadgets, "apply", "-f", "-")
		t.Cleanup(func() {
			labtest.Kubectl(t, kubeconfig, "", "delete", "crd", "gadgets.media.example.com", "--wait=false")
		})
		labtest.MustKubectl(t, kubeconfig, "", "wait", "--for=condition=Established", "crd/gadgets.media.example.com", "--timeout=30s")
		labtest.Eventually(t, 30*time.Second, func(context.Context) error {
			if res := labtest.Kubectl(t, kubeconfig, "", "-n", "default", "get", "gadgets.media.example.com"); res.Code != 0 {
				return errors.New(res.Err)
			}
			return nil
		})
		answers[name] = map[string]string{}
	}
	raw, err := (&metav1.ObjectMeta{Name: "one"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "media.example.com/v1", Kind: "Gadget"}, Raw: raw}
	body, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const object = `{"apiVersion":"media.example.com/v1","kind":"Gadget","metadata":{"name":"one"}}`
	for what, c := range map[string]struct{ body, contentType, accept string }{
		"protobuf":             {"k8s\x00" + string(body), "application/vnd.kubernetes.protobuf", "application/json"},
		"CBOR":                 {"\xd9\xd9\xf7\xa0", "application/cbor", "application/json"},
		"text":                 {object, "text/plain", "application/json"},
		"JSON":                 {object, "application/json", "application/json"},
		"YAML":                 {object, "application/yaml", "application/json"},
		"protobuf wanted":      {object, "application/json", "application/vnd.kubernetes.protobuf"},
		"CBOR wanted":          {object, "application/json", "application/cbor"},
		"protobuf, or JSON":    {object, "application/json", "application/vnd.kubernetes.protobuf,application/json"},
		"strategic merge":      {`{"metadata":{"labels":{"a":"b"}}}`, "application/strategic-merge-patch+json", "application/json"},
		"JSON of another kind": {strings.Replace(object, "Gadget", "Gizmo", 1), "application/json", "application/json"},
	} {
		answers["plain"][what] = postGadget(t, labtest.Config(t, world.plain), c.body, c.contentType, c.accept)
		answers["endpoint"][what] = postGadget(t, labtest.Config(t, world.System), c.body, c.contentType, c.accept)
		if plain, endpoint := answers["plain"][what], answers["endpoint"][what]; plain != endpoint {
			t.Errorf("%s: one cluster answers %q, the endpoint %q", what, plain, endpoint)
		}
	}
	t.Log(answers["plain"])
	if !strings.HasPrefix(answers["plain"]["JSON"], "201") {
		t.Error("not even JSON is taken")
	}
}

// postGadget gives code, type and reason of the answer to a creation that is
// not carried out.
func postGadget(t *testing.T, config *rest.Config, body, contentType, accept string) string {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	method, path := http.MethodPost, "/apis/media.example.com/v1/namespaces/default/gadgets?dryRun=All"
	if strings.Contains(contentType, "patch") {
		method, path = http.MethodPatch, strings.Replace(path, "?", "/one?", 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", accept)
	res, err := client.Do(req)
	if err != nil { // a handler that gives up resets the stream
		return "no answer"
	}
	defer res.Body.Close() //nolint:errcheck // read to its end below
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil && res.StatusCode < 300 {
		t.Errorf("%s: %v in %.200q", contentType, err, data)
	}
	return strings.Join([]string{res.Status, res.Header.Get("Content-Type"), string(status.Reason)}, " ")
}
