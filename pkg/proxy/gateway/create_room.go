package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// Want is what an object was refused for.
type Want struct {
	Namespace, Quota string
	// Resources as the refusal names them, "pods=1,requests.cpu=500m"; empty
	// where the member has not counted yet.
	Resources string
}

// wantOf reads the refusal of quota admission.
func wantOf(message string) (Want, bool) {
	if _, rest, ok := strings.Cut(message, "exceeded quota: "); ok {
		name, rest, ok := strings.Cut(rest, ", requested: ")
		resources, _, end := strings.Cut(rest, ", used: ")
		return Want{Quota: name, Resources: resources}, ok && end && name != ""
	}
	if _, rest, ok := strings.Cut(message, "status unknown for quota: "); ok {
		name, _, ok := strings.Cut(rest, ", resources: ")
		return Want{Quota: name}, ok && name != ""
	}
	return Want{}, false
}

// makesRoom: the member has refused for the lack of quota, of which it is about
// to get more. The whole quota has been asked before, and has room.
func (h *Handler) makesRoom(ctx context.Context, cluster cache.ClusterName, namespace string, resp *member.Response) bool {
	if h.Room == nil || resp.Code != http.StatusForbidden {
		return false
	}
	_, err := h.parseAnswer(resp)
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonForbidden {
		return false
	}
	want, ok := wantOf(status.ErrStatus.Message)
	if !ok {
		return false
	}
	want.Namespace = namespace
	return h.Room(ctx, cluster, want)
}
