package membership

import (
	"context"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Listable gives the resources that an API serves in their preferred version and
// that can be listed, with group and version filled in. Aggregated APIs that do
// not answer are left out; the error is that of discovery.
func Listable(ctx context.Context, client discovery.DiscoveryInterfaceWithContext) ([]metav1.APIResource, error) {
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && (len(lists) == 0 || !errors.As(err, &partial)) {
		return nil, err
	}
	var out []metav1.APIResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // not a group version: nothing that could be listed
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") {
				r.Group, r.Version = gv.Group, gv.Version
				out = append(out, r)
			}
		}
	}
	return out, nil
}
