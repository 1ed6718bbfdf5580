package journey

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
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
		labtest.MustKubectl(t, kubeconfig, "", "wait", "--for=condition=Established", "crd/gadgets.media.example.com", "--timeout=150s")
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
	method, path := http.MethodPost, "/apis/media.example.com/v1/namespaces/default/gadgets?dryRun=All"
	if strings.Contains(contentType, "patch") {
		method, path = http.MethodPatch, strings.Replace(path, "?", "/one?", 1)
	}
	res, err := labtest.Request(t.Context(), config, method, path, []byte(body), "Content-Type", contentType, "Accept", accept)
	if err != nil && res.Code != 0 {
		t.Fatal(err)
	}
	if err != nil { // a handler that gives up resets the stream
		return "no answer"
	}
	var status metav1.Status
	if err := json.Unmarshal(res.Body, &status); err != nil && res.Code < 300 {
		t.Errorf("%s: %v in %.200q", contentType, err, res.Body)
	}
	return strings.Join([]string{strconv.Itoa(res.Code), res.Header.Get("Content-Type"), string(status.Reason)}, " ")
}
