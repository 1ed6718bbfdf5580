package proxy

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestDecide(t *testing.T) {
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	kinds := NewKinds(DefaultClasses())
	const proxied = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy"
	tests := []struct {
		name, method, path string
		loopback           bool
		want               Destination
	}{
		{name: "list pods", path: "/api/v1/pods", want: Destination{Target: ToGateway}},
		{name: "one pod", path: "/api/v1/namespaces/d/pods/p", want: Destination{Target: ToGateway}},
		{name: "pod log", path: "/api/v1/namespaces/d/pods/p/log", want: Destination{Target: ToGateway}},
		{name: "create pod", method: http.MethodPost, path: "/api/v1/namespaces/d/pods", want: Destination{Target: ToGateway}},
		{name: "legacy watch path", path: "/api/v1/watch/namespaces/d/pods", want: Destination{Target: ToGateway}},
		{name: "loopback pods stay", path: "/api/v1/pods", loopback: true},
		{name: "loopback replica sets stay", path: "/apis/apps/v1/replicasets", loopback: true},
		{name: "replica sets", path: "/apis/apps/v1/namespaces/d/replicasets", want: Destination{Target: ToGateway}},
		{name: "deployments", path: "/apis/apps/v1/namespaces/d/deployments/web"},
		{name: "deployment scale", path: "/apis/apps/v1/namespaces/d/deployments/web/scale"},
		{name: "events of both groups", path: "/apis/events.k8s.io/v1/events", want: Destination{Target: ToGateway}},
		{name: "pod metrics", path: "/apis/metrics.k8s.io/v1beta1/pods", want: Destination{Target: ToGateway}},
		{name: "pods of another group", path: "/apis/example.com/v1/pods"},
		{name: "namespaces", path: "/api/v1/namespaces/d"},
		{name: "discovery", path: "/api/v1"},
		{name: "version", path: "/version"},
		{name: "a cluster", path: "/apis/cluster.karmada.io/v1alpha1/clusters/m1"},
		{name: "proxy root", path: proxied, want: Destination{Target: ToCluster, Cluster: "m1", Path: "/"}},
		{name: "proxy slash", path: proxied + "/", want: Destination{Target: ToCluster, Cluster: "m1", Path: "/"}},
		{name: "proxy path", path: proxied + "/api/v1/pods", want: Destination{Target: ToCluster, Cluster: "m1", Path: "/api/v1/pods"}},
		{name: "proxy keeps a trailing slash", path: proxied + "/healthz/", want: Destination{Target: ToCluster, Cluster: "m1", Path: "/healthz/"}},
		{name: "loopback may use the proxy", path: proxied + "/version", loopback: true, want: Destination{Target: ToCluster, Cluster: "m1", Path: "/version"}},
		{name: "status is not the proxy", path: "/apis/cluster.karmada.io/v1alpha1/clusters/m1/status"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			method := tt.method
			if method == "" {
				method = http.MethodGet
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "https://host"+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			info, err := resolver.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := Decide(info, kinds, tt.loopback); got != tt.want {
				t.Errorf("Decide(%s) = %+v, want %+v", tt.path, got, tt.want)
			}
		})
	}
}

func TestDecideWithoutInfo(t *testing.T) {
	if got := Decide(nil, NewKinds(nil), false); got.Target != ToControlPlane {
		t.Errorf("a request without RequestInfo went to %v", got.Target)
	}
}
