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
	const own = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"own","namespace":"d","resourceVersion":"5"},"spec":{"selector":{}}}`
	const copied = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"copied","namespace":"d","labels":{"isthmus.dev/managed":"true"}}}`
	w.Header().Set("Content-Type", jsonType)
	switch {
	case strings.HasSuffix(r.URL.Path, "/own"):
		io.WriteString(w, own)
	case strings.HasSuffix(r.URL.Path, "/copied"):
		io.WriteString(w, copied)
	case !strings.HasSuffix(r.URL.Path, "/deployments"):
		answerStatus(w, 404, metav1.StatusReasonNotFound)
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

// A cluster's own object is known as NAME.CLUSTER too, and prints as what it is.
func TestUnmanagedAlias(t *testing.T) {
	m1 := newStub(t, func(w http.ResponseWriter, _ *http.Request) { answerStatus(w, 404, metav1.StatusReasonNotFound) })
	m2 := newStub(t, deploymentsOf)
	e := newEndpoint(t, func(o *Options) { o.Members = staticMembers{m1.member("m1"), m2.member("m2")} })
	const path = "/apis/apps/v1/namespaces/d/deployments/"
	for name, want := range map[string]int{"own.m2": 200, "own.m1": 404, "own.m3": 404, "copied.m2": 404, ".m2": 404} {
		resp, body := e.fetch(t, path+name, jsonType, proxy.UnmanagedHeader, "0")
		if resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", name, resp.StatusCode, body, want)
		}
	}
	if resp, _ := e.fetch(t, path+"own.m2", jsonType); resp.StatusCode == 200 && strings.Contains(resp.Header.Get(ClusterHeader), "m2") {
		t.Error("an alias is known without the mark of the router")
	}
	resp, body := e.fetch(t, path+"own.m2", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", proxy.UnmanagedHeader, "0")
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if len(table.ColumnDefinitions) < 6 || len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells[:3]) != "[own.m2 m2 0/0]" {
		t.Errorf("%s", body)
	}
	resp, body = e.fetch(t, "/apis/apps/v1/namespaces/d/deployments?labelSelector=isthmus.dev/cluster%3Dm2",
		"application/json;as=Table;v=v1;g=meta.k8s.io", proxy.UnmanagedHeader, "4711")
	table = metav1.Table{}
	if err := json.Unmarshal(body, &table); err != nil || resp.StatusCode != 200 || len(table.Rows) != 1 || table.ResourceVersion != "4711" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
