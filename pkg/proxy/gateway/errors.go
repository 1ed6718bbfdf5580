package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// retrySoon is the Retry-After of answers that a moment's wait may cure.
const retrySoon = 1

func groupResource(info *request.RequestInfo) schema.GroupResource {
	return schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
}

// fail answers with the Status that an error stands for, in the encoding that
// the client asked for. Nothing may have been written before.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		// The client has gone: whatever is written reaches nobody, but the
		// audit record and the metrics want a code.
		err = apierrors.NewTimeoutError("the client closed the request", 0)
	}
	if errors.Is(err, cache.ErrElsewhere) {
		w.Header().Set(proxy.NotLeadingHeader, "true")
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	status := statusError(err, info)
	code := responsewriters.ErrorNegotiated(status, h.Codecs, gv, w, r)
	if code >= http.StatusInternalServerError {
		klog.FromContext(r.Context()).V(2).Info("Request failed", "verb", info.Verb, "path", info.Path, "code", code, "err", err)
	}
}

// statusError translates an error of the cache to the one that a
// kube-apiserver would give; an error that has a Status already stays.
func statusError(err error, info *request.RequestInfo) error {
	var known apierrors.APIStatus
	var notLoaded *cache.NotLoadedError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &notLoaded):
		return notLoadedStatus(notLoaded.Gaps)
	case errors.Is(err, cache.ErrNotFound):
		return apierrors.NewNotFound(groupResource(info), info.Name)
	case errors.Is(err, cache.ErrExpired):
		return apierrors.NewResourceExpired("the requested resourceVersion is too old: it is no longer in the history")
	case errors.Is(err, cache.ErrTooNew):
		return tooNew()
	case errors.Is(err, cache.ErrHeld):
		return apierrors.NewAlreadyExists(groupResource(info), info.Name)
	case errors.Is(err, cache.ErrClosed):
		return unavailable("the server is shutting down", nil)
	case errors.Is(err, cache.ErrElsewhere):
		return unavailable("this cluster-gateway cannot renew its Lease, another may serve: "+sanitize(err.Error(), maxWarning), nil)
	case errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("the request did not complete in time", retrySoon)
	}
	return apierrors.NewInternalError(err)
}

// tooNew carries the cause by which clients know that their resourceVersion is
// ahead of this server.
func tooNew() error {
	err := apierrors.NewTimeoutError("the requested resourceVersion is ahead of this server", retrySoon)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// unavailable is a 503 that a client may repeat.
func unavailable(message string, causes []metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Message: message,
		Details: &metav1.StatusDetails{RetryAfterSeconds: retrySoon, Causes: causes},
	}}
}

// Cause types of a 503 about clusters; the field of the cause is the name.
const (
	causeNotLoaded   metav1.CauseType = "ClusterNotLoaded"
	causeStale       metav1.CauseType = "ClusterUnreachable"
	causeNeverSynced metav1.CauseType = "ClusterNeverSynced"
)

func causeOf(kind cache.GapKind) metav1.CauseType {
	switch kind {
	case cache.NotLoaded:
		return causeNotLoaded
	case cache.NeverSynced:
		return causeNeverSynced
	case cache.Stale:
		return causeStale
	}
	return causeStale
}

func gapCauses(gaps []cache.Gap) []metav1.StatusCause {
	causes := make([]metav1.StatusCause, len(gaps))
	for i, g := range gaps {
		causes[i] = metav1.StatusCause{Type: causeOf(g.Kind), Field: string(g.Cluster), Message: sanitize(g.String(), maxWarning)}
	}
	return causes
}

// notLoadedStatus refuses a list that would omit what the named clusters hold:
// an informer reads an omission as deletions.
func notLoadedStatus(gaps []cache.Gap) error {
	var message strings.Builder
	message.WriteString("the list would be incomplete")
	for _, g := range gaps {
		if g.Cluster == cache.AllClusters {
			message.WriteString("; " + g.String())
			continue
		}
		_, _ = fmt.Fprintf(&message, "; cluster %q is not loaded, an operator can leave it out with: multicluster-apiserver absent %s", g.Cluster, g.Cluster)
	}
	return unavailable(message.String(), gapCauses(gaps))
}

// strictStatus refuses a read that asked for live answers of every cluster.
func strictStatus(gaps []cache.Gap) error {
	var message strings.Builder
	message.WriteString("consistency=strict")
	for _, g := range gaps {
		message.WriteString("; " + sanitize(g.String(), maxWarning))
	}
	return unavailable(message.String(), gapCauses(gaps))
}

// continueExpired is the answer to a continue token whose snapshot is gone; it
// carries a token that goes on from the same key in the present state.
func continueExpired(start string) error {
	token, err := storage.EncodeContinue("/"+start, "/", -1)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("encoding the continue token: %w", err))
	}
	status := apierrors.NewResourceExpired("the snapshot of this continue token is no longer in the history; " +
		"list again without it, or go on with the token in this answer at the price of consistency: " +
		"objects changed since the first page may be seen in their new state or not at all")
	status.ErrStatus.Continue = token
	return status
}
