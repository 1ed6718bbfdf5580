package controllerruntime

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// namingNodes is a kubeconfig that leads to the endpoint through a relay. The
// relay adds the cluster's label to Nodes that are created without one: the
// suites make Nodes, and a cluster has to be named for those (clause D3.1.d).
func namingNodes(t *testing.T, cluster string) string {
	t.Helper()
	config := labtest.Config(t, world.System)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	relay := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/nodes" {
			if err := nameCluster(r, cluster); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
		relay.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	out := clientcmdapi.NewConfig()
	out.Clusters["relay"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	out.Contexts["relay"] = &clientcmdapi.Context{Cluster: "relay"}
	out.CurrentContext = "relay"
	path := filepath.Join(t.TempDir(), "relay.kubeconfig")
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// nameCluster rewrites the body of a request in the form in which it came; of
// JSON, fields that no Node has stay where they are.
func nameCluster(r *http.Request, cluster string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var node unstructured.Unstructured
	if json.Unmarshal(body, &node.Object) == nil {
		name(&node, cluster)
		body, err = json.Marshal(node.Object)
	} else {
		body, err = nameTyped(body, r.Header.Get("Content-Type"), cluster)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

func name(node metav1.Object, cluster string) {
	labels := node.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["isthmus.dev/cluster"] = cluster
	node.SetLabels(labels)
}

func nameTyped(body []byte, mediaType, cluster string) ([]byte, error) {
	info, known := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	node, ok := object.(*corev1.Node)
	if err != nil || !ok || !known {
		return body, nil //nolint:nilerr // the endpoint says what is wrong with it
	}
	name(node, cluster)
	var out bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(node, &out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
