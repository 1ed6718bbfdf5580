package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// deploymentsOf is a member with one Deployment of its own and one copy of a template.
func deploymentsOf(w http.ResponseWriter, r *http.Request) {
	const own = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"own","namespace":"d","resourceVersion":"5"}}`
	const copied = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"copied","namespace":"d","labels":{"isthmus.dev/managed":"true"}}}`
	w.Header().Set("Content-Type", jsonType)
	switch {
	case strings.HasSuffix(r.URL.Path, "/own"):
		io.WriteString(w, own)
	case strings.HasSuffix(r.URL.Path, "/copied"):
		io.WriteString(w, copied)
	default:
		fmt.Fprintf(w, `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9"},"items":[%s,%s]}`, copied, own)
	}
}

// Reads of what members have beside the templates leave out managed copies, and
// a list has the control plane's resourceVersion.
func TestUnmanagedReads(t *testing.T) {
	m2 := newStub(t, deploymentsOf)
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m2.member("m2")} })
	const path = "/apis/apps/v1/namespaces/d/deployments"
	resp, body := e.fetch(t, path+"?labelSelector=isthmus.dev/cluster%3Dm2", jsonType, proxy.UnmanagedHeader, "4711")
	var l metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &l); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if len(l.Items) != 1 || l.Items[0].Name != "own" || l.Items[0].Labels[cache.ClusterLabel] != "m2" || l.ResourceVersion != "4711" {
		t.Errorf("%s", body)
	}
	for name, want := range map[string]int{"own": 200, "copied": 404} {
		if resp, body := e.fetch(t, path+"/"+name, jsonType, proxy.UnmanagedHeader, "4711"); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", name, resp.StatusCode, body, want)
		}
	}
	if resp, body := e.fetch(t, path+"/copied", jsonType); resp.StatusCode != 200 {
		t.Errorf("without the mark of the router: %d %s", resp.StatusCode, body)
	}
}
