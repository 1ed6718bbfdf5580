// Package subresources puts into discovery what the router serves beneath a
// custom kind: a CustomResourceDefinition can declare the subresources status
// and scale, and no other.
//
//	CRD discovery -> Manager (aggregated documents)     -> client
//	request -> Handler (the plain document of a version) -> client
package subresources

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var (
	clusters = schema.GroupVersion{Group: "cluster.karmada.io", Version: "v1alpha1"}
	// path is where the plain document of the version is served.
	path = "/apis/" + clusters.String()
	// connectVerbs are what Kubernetes lists for a proxy.
	connectVerbs = []string{"create", "delete", "get", "patch", "update"}
)

const (
	resource    = "clusters"
	subresource = "proxy"
	kind        = "Cluster"
)

// Manager completes what is added to a manager of aggregated discovery.
func Manager(next aggregated.ResourceManager) aggregated.ResourceManager {
	return manager{next}
}

type manager struct{ aggregated.ResourceManager }

func (m manager) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	if group == clusters.Group && version.Version == clusters.Version {
		version = completeAggregated(version)
	}
	m.ResourceManager.AddGroupVersion(group, version)
}

func (m manager) WithSource(source aggregated.Source) aggregated.ResourceManager {
	return manager{m.ResourceManager.WithSource(source)}
}

// completeAggregated adds the subresource to a copy.
func completeAggregated(version apidiscoveryv2.APIVersionDiscovery) apidiscoveryv2.APIVersionDiscovery {
	version = *version.DeepCopy()
	for i := range version.Resources {
		r := &version.Resources[i]
		known := func(s apidiscoveryv2.APISubresourceDiscovery) bool { return s.Subresource == subresource }
		if r.Resource == resource && !slices.ContainsFunc(r.Subresources, known) {
			r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource:  subresource,
				ResponseKind: &metav1.GroupVersionKind{Group: clusters.Group, Version: clusters.Version, Kind: kind},
				Verbs:        connectVerbs,
			})
		}
	}
	return version
}

// Handler completes the plain document; everything else passes.
func Handler(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.IsResourceRequest || r.Method != http.MethodGet || info.Path != path && info.Path != path+"/" {
			next.ServeHTTP(w, r)
			return
		}
		if list, ok := plain(next, r); ok {
			discovery.NewAPIVersionHandler(codecs, clusters, listed(complete(list))).ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r) // not served yet
	})
}

type listed []metav1.APIResource

func (l listed) ListAPIResources() []metav1.APIResource { return l }

// plain asks for the document as JSON, whatever the client wants.
func plain(next http.Handler, r *http.Request) ([]metav1.APIResource, bool) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json")
	r.Header.Del("Accept-Encoding")
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	var list metav1.APIResourceList
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &list) != nil || list.Kind != "APIResourceList" {
		return nil, false
	}
	return list.APIResources, true
}

// complete adds the subresource behind its resource.
func complete(list []metav1.APIResource) []metav1.APIResource {
	at := slices.IndexFunc(list, func(r metav1.APIResource) bool { return r.Name == resource })
	if at < 0 || slices.ContainsFunc(list, func(r metav1.APIResource) bool { return r.Name == resource+"/"+subresource }) {
		return list
	}
	return slices.Insert(slices.Clone(list), at+1, metav1.APIResource{
		Name: resource + "/" + subresource, Kind: kind, Verbs: connectVerbs,
	})
}
