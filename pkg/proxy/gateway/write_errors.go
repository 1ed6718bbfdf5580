package gateway

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// Cause types of an answer that a cluster did not give.
const (
	causeCredentials metav1.CauseType = "ClusterRefusedCredentials"
	causeBadAnswer   metav1.CauseType = "ClusterBadAnswer"
)

// refuse answers a routed request with an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, err error) {
	h.fail(w, r, info, h.memberError(err))
}

// memberError turns the errors of a member's transport into a Status. A
// Retry-After makes clients send a write again, so it is only there when the
// member has surely not seen the request, and is expected back at once: a client
// that is told to try again does so ten times before it says what is wrong.
func (h *Handler) memberError(err error) error {
	var gone *member.UnreachableError
	switch {
	case errors.Is(err, member.ErrPath), errors.Is(err, member.ErrUpgradeToken):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, member.ErrNoUser):
		return apierrors.NewUnauthorized("no user to act for")
	case !errors.As(err, &gone):
		return err
	}
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Message: sanitize(gone.Error(), 1024),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: causeStale, Field: string(gone.Cluster), Message: sanitize(gone.Err.Error(), 512),
		}}},
	}
	cause := &status.Details.Causes[0]
	switch {
	case errors.Is(err, member.ErrCredentials):
		cause.Type = causeCredentials
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	case errors.Is(err, member.ErrRedirect), errors.Is(err, member.ErrTooLarge), errors.Is(err, member.ErrSwitched):
		cause.Type = causeBadAnswer
		status.Code, status.Reason = http.StatusBadGateway, metav1.StatusReasonInternalError
	case gone.Sent:
		status.Code, status.Reason = http.StatusGatewayTimeout, metav1.StatusReasonTimeout
		status.Message += "; it is not known whether the request took effect"
	default:
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
		if m, ok := h.Members.Get(gone.Cluster); ok && m.Ready && !gone.Lasting {
			status.Details.RetryAfterSeconds = retrySoon
		}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// unseen is the error of an answer whose object cannot be shown.
func unseen(id *identity, err error) error {
	if errors.Is(err, errOtherObject) {
		return apierrors.NewGenericServerResponse(http.StatusBadGateway, "", schema.GroupResource{}, "",
			fmt.Sprintf("cluster %q: %v", string(id.cluster), err), 0, true)
	}
	return notVisible(string(id.cluster), err)
}

// notVisible says that a write took effect in its cluster, but cannot be
// answered with the resourceVersion that its event will have.
func notVisible(name string, err error) error {
	e := apierrors.NewTimeoutError(fmt.Sprintf("the request took effect in cluster %q, but its result is not visible yet: %v", name, err), 0)
	e.ErrStatus.Details.RetryAfterSeconds = 0
	return e
}
