package fleet

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

func TestParseResources(t *testing.T) {
	widget := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Namespaced: true, Encoding: cache.JSON}
	volume := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Kind: "PersistentVolume"}
	claim := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, Kind: "PersistentVolumeClaim", Namespaced: true, FromControlPlane: true}
	tests := []struct {
		in   []string
		want []Resource
		bad  bool
	}{
		{in: nil},
		{in: []string{"widgets.v1.example.com=Widget"}, want: []Resource{{Resource: widget}}},
		{in: []string{"widgets.v1.example.com=Widget", "widgets.v1.example.com=Widget"}, want: []Resource{{Resource: widget}}},
		{in: []string{"persistentvolumes.v1.=PersistentVolume:cluster"}, want: []Resource{{Resource: volume}}},
		{in: []string{"persistentvolumeclaims.v1.=PersistentVolumeClaim:dual"}, want: []Resource{{Resource: claim}}},
		{in: []string{"persistentvolumes.v1.=PersistentVolume:cluster:off"}, want: []Resource{{Resource: volume, Off: true}}},
		{in: []string{"widgets.v1.example.com"}, bad: true},
		{in: []string{"widgets=Widget"}, bad: true},
		{in: []string{"widgets.v1.example.com=Widget:tall"}, bad: true},
	}
	for _, tt := range tests {
		got, err := ParseResources(tt.in)
		if (err != nil) != tt.bad || !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %+v, %v", tt.in, got, err)
		}
	}
}

// A member that is to see users never sees the identity that reads instead.
func TestUsersAreImpersonated(t *testing.T) {
	read, users := &rest.Config{Host: "read"}, &rest.Config{Host: "users"}
	for name, c := range map[string]struct {
		member      membership.Member
		want        *rest.Config
		impersonate bool
	}{
		"as ourselves":    {membership.Member{Read: read}, read, false},
		"as users":        {membership.Member{Read: read, Impersonate: users, ForUsers: true}, users, true},
		"not possible":    {membership.Member{Read: read, ForUsers: true}, nil, true},
		"not asked for":   {membership.Member{Read: read, Impersonate: users}, read, false},
		"no way at all":   {membership.Member{}, nil, false},
		"only for people": {membership.Member{Impersonate: users, ForUsers: true}, users, true},
	} {
		if got := present(c.member); got.Config != c.want || got.Impersonate != c.impersonate {
			t.Errorf("%s: %v, impersonated %v", name, got.Config, got.Impersonate)
		}
	}
}

func TestClassesAndResourcesAgree(t *testing.T) {
	asked, err := ParseResources([]string{
		"widgets.v1.example.com=Widget", "endpoints.v1.=Endpoints:off",
		"persistentvolumeclaims.v1.=PersistentVolumeClaim", "gadgets.v1.example.com=Gadget:dual",
	})
	if err != nil {
		t.Fatal(err)
	}
	cached := map[schema.GroupResource]proxy.Class{}
	for _, r := range with(membercache.DefaultResources(), asked) {
		if _, twice := cached[r.GroupResource()]; twice {
			t.Errorf("%s is cached twice", r)
		}
		cached[r.GroupResource()] = proxy.Member
		if r.FromControlPlane && r.Kind != "Event" {
			cached[r.GroupResource()] = proxy.Dual
		}
	}
	classes := Classes(asked)
	for gr, class := range classes {
		if class == proxy.Live || gr.Group == "events.k8s.io" {
			continue
		}
		if cached[gr] != class {
			t.Errorf("%s is routed as %d and cached as %d", gr, class, cached[gr])
		}
	}
	for gr := range cached {
		if classes[gr] == proxy.Federated {
			t.Errorf("%s is cached, but its requests never come here", gr)
		}
	}
	if _, ok := cached[schema.GroupResource{Resource: "endpoints"}]; ok {
		t.Error("a kind that was taken out is cached")
	}
}
