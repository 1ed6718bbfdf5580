package gateway

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// barred are the clusters that the namespace of a new object does not allow.
func (h *Handler) barred(ctx context.Context, info *request.RequestInfo) ([]cache.ClusterName, error) {
	if h.Limit == nil || info.Namespace == "" {
		return nil, nil
	}
	allowed, err := h.Limit(ctx, info.Namespace)
	if err != nil {
		return nil, unavailable(fmt.Sprintf("it is not known which clusters namespace %s allows: %v", info.Namespace, err), nil)
	}
	if allowed == nil {
		return nil, nil
	}
	out := []cache.ClusterName{}
	for _, m := range h.Members.List() {
		if m.Name != cache.ControlPlane && !slices.Contains(allowed, m.Name) {
			out = append(out, m.Name)
		}
	}
	return out, nil
}

func notAllowed(info *request.RequestInfo, name string, cluster cache.ClusterName) error {
	return apierrors.NewForbidden(groupResource(info), name, fmt.Errorf("namespace %s is limited to other clusters than %q (isthmus.dev/clusters)", info.Namespace, string(cluster)))
}
