package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

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

// askAgain is how often one creation asks for the same.
const askAgain = 2 * time.Second

// asking is one write's way to room.
type asking struct {
	h         *Handler
	cluster   cache.ClusterName
	namespace string
	last      Want
	at        time.Time
}

// whenRoom sends a change of an object, and again for a while as long as nothing
// but its cluster's share of a quota is too small: a change can bring a Pod into
// the scope of a quota.
func (h *Handler) whenRoom(ctx context.Context, o *owned, send func(context.Context) (*member.Response, error)) (*member.Response, error) {
	room := asking{h: h, cluster: o.member.Name, namespace: o.obj.Key.Namespace}
	return sendUntil(ctx, send, func(resp *member.Response) bool { return room.comes(ctx, resp) })
}

// comes: the member has refused for the lack of quota, of which it is about to
// get more. The whole quota has been asked before, and has room.
func (a *asking) comes(ctx context.Context, resp *member.Response) bool {
	if a.h.Room == nil || resp.Code != http.StatusForbidden {
		return false
	}
	_, err := a.h.parseAnswer(resp)
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonForbidden {
		return false
	}
	want, ok := wantOf(status.ErrStatus.Message)
	if !ok {
		return false
	}
	want.Namespace = a.namespace
	if want == a.last && time.Since(a.at) < askAgain {
		return true
	}
	a.last, a.at = want, time.Now()
	return a.h.Room(ctx, a.cluster, want)
}
