package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// serveList answers a LIST. An error means that nothing has been written.
func (h *Handler) serveList(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	k := h.kindOf(info, c.Resource())
	f, err := h.negotiate(r, k, manyObjects)
	if err != nil {
		return err
	}
	q, err := h.parseQuery(r, info, k, c.Resource())
	if err != nil {
		return err
	}
	if err := h.authorizeSelection(r.Context(), info, &q.selection); err != nil {
		return err
	}
	p, err := h.page(r.Context(), c, &q)
	if err != nil {
		return err
	}
	gaps, err := h.completeness(c, &q.selection, q.strict)
	if err != nil {
		return err
	}
	warn(w, warnings(gaps))
	return h.writeList(w, r, info.Resource, f, encoderFor(k, f, h.tables), p)
}

var errContinueWithRV = apierrors.NewBadRequest("specifying resource version is not allowed when using continue")

// page finds the snapshot and the part of it that a LIST asks for.
func (h *Handler) page(ctx context.Context, c cache.Collection, q *query) (page, error) {
	namespaced := c.Resource().Namespaced
	var at position
	if q.Continue != "" {
		if q.ResourceVersion != "" && q.ResourceVersion != "0" {
			return page{}, errContinueWithRV
		}
		var err error
		if at, err = decodePosition(q.Continue, namespaced); err != nil {
			return page{}, err
		}
		q.version = cache.Version{Match: cache.Latest}
		if at.rv > 0 {
			q.version = cache.Version{Match: cache.Exact, RV: at.rv}
		}
	}
	if err := h.awaitComplete(ctx, c, &q.selection, q.strict); err != nil {
		return page{}, err
	}
	snap, err := c.Snapshot(ctx, q.version)
	if err != nil {
		if at.rv > 0 && errors.Is(err, cache.ErrExpired) {
			return page{}, continueExpired(at.start)
		}
		return page{}, err
	}
	p := pageCutter{snap: snap, rv: snap.RV(), selection: &q.selection, namespaced: namespaced}
	if q.version.Match == cache.Exact {
		p.rv = q.version.RV
	}
	if q.Limit <= 0 || q.version.Match == cache.Any && q.Continue == "" {
		return p.whole(at), nil
	}
	return p.cut(at, q.Limit)
}

// awaitComplete returns when the collection omits nothing that it must not:
// an informer would read the omission as deletions.
func (h *Handler) awaitComplete(ctx context.Context, c cache.Collection, s *selection, strict bool) error {
	for _, g := range s.gaps(c.Gaps()) {
		if g.Kind != cache.NotLoaded {
			continue
		}
		if err := h.awaitLoaded(ctx, c, s); err != nil {
			return err
		}
		break
	}
	if !strict {
		return nil
	}
	if err := c.AwaitFresh(ctx); err != nil {
		var known apierrors.APIStatus
		if ctx.Err() != nil || errors.As(err, &known) || errors.Is(err, cache.ErrClosed) {
			return err
		}
		if gaps := s.gaps(c.Gaps()); len(gaps) > 0 {
			return strictStatus(gaps)
		}
		return unavailable("consistency=strict: "+sanitize(err.Error(), maxWarning), nil)
	}
	return nil
}

// awaitLoaded waits a bounded time. What is not loaded then and does not
// concern the selection is no obstacle.
func (h *Handler) awaitLoaded(ctx context.Context, c cache.Collection, s *selection) error {
	wait, cancel := context.WithTimeout(ctx, h.LoadWait)
	defer cancel()
	err := h.Cache.AwaitLoaded(wait, c.Resource().GroupVersionResource)
	var missing *cache.NotLoadedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &missing) && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return notLoadedOf(s.gaps(c.Gaps()))
}

// notLoadedOf is the refusal for the gaps that are not loaded, if any.
func notLoadedOf(gaps []cache.Gap) error {
	var missing []cache.Gap
	for _, g := range gaps {
		if g.Kind == cache.NotLoaded {
			missing = append(missing, g)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &cache.NotLoadedError{Gaps: missing}
}

// completeness looks at the gaps after the snapshot was taken: one that has
// arisen meanwhile is told too. Strict turns every one into a refusal.
func (h *Handler) completeness(c cache.Collection, s *selection, strict bool) ([]cache.Gap, error) {
	gaps := s.gaps(c.Gaps())
	if strict && len(gaps) > 0 {
		return nil, strictStatus(gaps)
	}
	return gaps, notLoadedOf(gaps)
}

// abort ends an answer that cannot be completed: with a Status when nothing
// has been sent, else by cutting the connection, so that a part never passes
// for the whole.
func (h *Handler) abort(r *http.Request, started bool, err error) error {
	if !started {
		return err
	}
	if r.Context().Err() == nil {
		klog.FromContext(r.Context()).Error(err, "Answer cut off", "path", r.URL.Path)
	}
	panic(http.ErrAbortHandler)
}

// writeServed answers with an object as served, in the form that the client
// negotiated: GET and the answers of writes share it. An error means that
// nothing has been written.
func (h *Handler) writeServed(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, code int, o *cache.Object) error {
	k := h.kindOf(info, c.Resource())
	f, err := h.negotiate(r, k, oneObject)
	if err != nil {
		return err
	}
	e := encoderFor(k, f, h.tables)
	b, err := e.object(nil, o)
	if err != nil {
		return err
	}
	setClusters(w, o.Cluster)
	return h.writeWhole(w, r, e.contentType(), code, b)
}

// contentLength is the header of an answer whose size is known.
func contentLength(n int) string { return strconv.Itoa(n) }
