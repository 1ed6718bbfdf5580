package fleet

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func TestParseResources(t *testing.T) {
	widget := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Namespaced: true, Encoding: cache.JSON}
	volume := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Kind: "PersistentVolume"}
	claim := cache.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, Kind: "PersistentVolumeClaim", Namespaced: true, FromControlPlane: true}
	tests := []struct {
		in   []string
		want []cache.Resource
		bad  bool
	}{
		{in: nil},
		{in: []string{"widgets.v1.example.com=Widget"}, want: []cache.Resource{widget}},
		{in: []string{"widgets.v1.example.com=Widget", "widgets.v1.example.com=Widget"}, want: []cache.Resource{widget}},
		{in: []string{"persistentvolumes.v1.=PersistentVolume:cluster"}, want: []cache.Resource{volume}},
		{in: []string{"persistentvolumeclaims.v1.=PersistentVolumeClaim:dual"}, want: []cache.Resource{claim}},
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
