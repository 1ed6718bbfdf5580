package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

const (
	// deletesAtOnce bounds the deletions that one request runs in parallel.
	deletesAtOnce = 16
	// settle bounds the wait for all deletions of a request to be seen.
	settle = 2 * time.Second
)

// deleteCollection deletes what a LIST with the same selectors shows: each
// object in its cluster, on condition of its UID, so that an object that took
// a name over meanwhile stays. Failures of one cluster do not keep the others
// from being done; they are named in the answer.
func (h *Handler) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	options, err := deleteOptions(r)
	if err != nil {
		return err
	}
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
	q.version = cache.Version{}
	p, err := h.page(r.Context(), c, &q)
	if err != nil {
		return err
	}
	objects := slices.Collect(objectsOf(p.runs))
	results := h.deleteAll(r, info, c, objects, options)
	gaps := q.selection.gaps(c.Gaps())
	failures := results.failures()
	for _, g := range gaps {
		if g.Kind != cache.Stale {
			failures = append(failures, metav1.StatusCause{Type: causeOf(g.Kind), Field: string(g.Cluster), Message: sanitize(g.String(), maxWarning)})
		}
	}
	if len(failures) > 0 {
		return results.failure(info, failures)
	}
	setClusters(w, results.clusters()...)
	// A list of what was deleted, as kube-apiserver answers.
	deleted := pageOf(listMeta{ResourceVersion: p.meta.ResourceVersion}, objects)
	return h.writeList(w, r, info.Resource, f, encoderFor(k, f, h.tables), deleted)
}

// deletion is the outcome of one of many.
type deletion struct {
	obj *cache.Object
	err error
}

type deletions []deletion

// deleteAll deletes the objects, some at once, and returns when reads show it
// or the wait for that is over.
func (h *Handler) deleteAll(r *http.Request, info *request.RequestInfo, c cache.Collection, objects []*cache.Object, options *metav1.DeleteOptions) deletions {
	results := make(deletions, len(objects))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	var wg sync.WaitGroup
	slots := make(chan struct{}, deletesAtOnce)
	var seen sync.Map // *cache.Object -> *answer of a deletion that was done
	down := &downMembers{}
	for i, obj := range objects {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a, err := h.deleteOne(r, info, c, obj, options.DeepCopy(), down)
			results[i] = deletion{obj, err}
			if err == nil {
				seen.Store(obj, a)
			}
		})
	}
	wg.Wait()
	if len(options.DryRun) == 0 {
		h.settle(ctx, c, &seen)
	}
	return results
}

// downMembers remembers which members gave no answer, so that a thousand
// objects of a dead one do not wait for it a thousand times.
type downMembers struct {
	mu  sync.Mutex
	err map[cache.ClusterName]error
}

func (d *downMembers) of(name cache.ClusterName) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err[name]
}

func (d *downMembers) set(name cache.ClusterName, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = make(map[cache.ClusterName]error)
	}
	d.err[name] = err
}

func (h *Handler) deleteOne(r *http.Request, info *request.RequestInfo, c cache.Collection, obj *cache.Object, options *metav1.DeleteOptions, down *downMembers) (*answer, error) {
	if err := down.of(obj.Cluster); err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	rt, err := h.routeTo(r.Context(), obj.Cluster, info)
	if err != nil {
		return nil, err
	}
	o := &owned{route: rt, c: c, res: c.Resource(), obj: obj}
	id := newIdentity(o.res, obj)
	if err := id.precondition(options); err != nil {
		return nil, err
	}
	resp, err := o.sendDelete(r.Context(), r, o.path(info, ""), options)
	if err != nil {
		down.set(obj.Cluster, err)
		return nil, err
	}
	a, err := h.parseAnswer(resp)
	if apierrors.IsNotFound(err) {
		return nil, nil // somebody else was faster
	}
	return a, renameStatus(err, id)
}

// settle waits until reads show what was done.
func (h *Handler) settle(ctx context.Context, c cache.Collection, seen *sync.Map) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	seen.Range(func(key, value any) bool {
		id := newIdentity(c.Resource(), key.(*cache.Object))
		a := value.(*answer)
		if a == nil {
			return ctx.Err() == nil
		}
		if lingers, err := a.lingers(id); err == nil && lingers {
			// Not being seen in time changes nothing about the answer.
			_, _ = h.observe(ctx, c, id, a)
			return ctx.Err() == nil
		}
		h.awaitDeleted(ctx, c, id)
		return ctx.Err() == nil
	})
}

func (d deletions) clusters() []cache.ClusterName {
	var out []cache.ClusterName
	for _, x := range d {
		out = append(out, x.obj.Cluster)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failures sums up per cluster: how many objects, and the first error.
func (d deletions) failures() []metav1.StatusCause {
	count := map[cache.ClusterName]int{}
	first := map[cache.ClusterName]deletion{}
	for _, x := range d {
		if x.err == nil {
			continue
		}
		if count[x.obj.Cluster]++; count[x.obj.Cluster] == 1 {
			first[x.obj.Cluster] = x
		}
	}
	var out []metav1.StatusCause
	for _, name := range d.clusters() {
		if n := count[name]; n > 0 {
			out = append(out, metav1.StatusCause{
				Type: "ClusterDeletionFailed", Field: string(name),
				Message: sanitize(fmt.Sprintf("%d objects not deleted, the first is %s: %v", n, first[name].obj.Key, first[name].err), 512),
			})
		}
	}
	return out
}

// failure answers for a request that was not done everywhere. When all
// failures are one and the same refusal of a member, that is the answer.
func (d deletions) failure(info *request.RequestInfo, causes []metav1.StatusCause) error {
	done, failed := 0, 0
	for _, x := range d {
		if x.err == nil {
			done++
		} else {
			failed++
		}
	}
	if done == 0 && failed == 1 && len(d) == 1 && len(causes) == 1 {
		return d[0].err
	}
	var message strings.Builder
	_, _ = fmt.Fprintf(&message, "%d of %d %s were deleted", done, done+failed, info.Resource)
	for _, c := range causes {
		_, _ = fmt.Fprintf(&message, "; cluster %q: %s", c.Field, c.Message)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: sanitize(message.String(), 4096),
		Details: &metav1.StatusDetails{Group: info.APIGroup, Kind: info.Resource, Causes: causes},
	}}
}
