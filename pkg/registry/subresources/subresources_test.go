package subresources

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

const document = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"cluster.karmada.io/v1alpha1","resources":[
	{"name":"clusters","singularName":"cluster","namespaced":false,"kind":"Cluster","verbs":["get"],"storageVersionHash":"abc="},
	{"name":"clusters/status","singularName":"","namespaced":false,"kind":"Cluster","verbs":["get"]}]}`

func served(t *testing.T, next http.HandlerFunc, method, at string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, at, http.NoBody)
	r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Path: r.URL.Path}))
	w := httptest.NewRecorder()
	Handler(next, scheme.Codecs.WithoutConversion()).ServeHTTP(w, r)
	return w
}

func TestPlainDocument(t *testing.T) {
	inner := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(document)) }
	for _, at := range []string{path, path + "/"} {
		w := served(t, inner, http.MethodGet, at)
		var list metav1.APIResourceList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %v: %s", at, w.Code, err, w.Body)
		}
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"clusters", "clusters/proxy", "clusters/status"}) {
			t.Errorf("%s lists %v", at, names)
		}
		if list.GroupVersion != clusters.String() || list.APIResources[0].StorageVersionHash != "abc=" {
			t.Errorf("%s: the rest of the document has changed: %s", at, w.Body)
		}
	}
}

func TestOthersPass(t *testing.T) {
	for name, c := range map[string]struct {
		method, at, body string
		code             int
	}{
		"another document": {http.MethodGet, "/apis/policy.karmada.io/v1alpha1", document, 200},
		"another method":   {http.MethodPost, path, "no", 405},
		"not served yet":   {http.MethodGet, path, "404 page not found", 404},
		"not a document":   {http.MethodGet, path, `{"kind":"Status"}`, 200},
	} {
		w := served(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}, c.method, c.at)
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestAggregatedDocument(t *testing.T) {
	all := aggregated.NewResourceManager("apis")
	m := Manager(all).WithSource(aggregated.CRDSource)
	version := apidiscoveryv2.APIVersionDiscovery{Version: "v1alpha1", Resources: []apidiscoveryv2.APIResourceDiscovery{
		{Resource: "clusters", Scope: apidiscoveryv2.ScopeCluster}, {Resource: "others", Scope: apidiscoveryv2.ScopeCluster},
	}}
	m.AddGroupVersion("cluster.karmada.io", version)
	m.AddGroupVersion("other.example.com", version)
	r := httptest.NewRequest(http.MethodGet, "/apis", http.NoBody)
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	w := httptest.NewRecorder()
	all.ServeHTTP(w, r)
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for _, group := range list.Items {
		for _, r := range group.Versions[0].Resources {
			want := 0
			if group.Name == "cluster.karmada.io" && r.Resource == "clusters" {
				want = 1
			}
			if len(r.Subresources) != want {
				t.Errorf("%s of %s has the subresources %v", r.Resource, group.Name, r.Subresources)
			}
		}
	}
	if len(version.Resources[0].Subresources) != 0 {
		t.Error("what was handed over has been changed")
	}
}
