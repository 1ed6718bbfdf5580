package controllerruntime

import (
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// nameCluster rewrites the body of a request in the form in which it came.
func nameCluster(r *http.Request, cluster string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	info, known := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), r.Header.Get("Content-Type"))
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if node, ok := object.(*corev1.Node); ok && known && err == nil {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels["isthmus.dev/cluster"] = cluster
		var out bytes.Buffer
		if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(node, &out); err != nil {
			return err
		}
		body = out.Bytes()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}
