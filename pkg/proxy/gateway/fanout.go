package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

// liveWait is how long one member has to answer for a kind that is not cached.
const liveWait = 5 * time.Second

// fanout answers for a kind that is not cached by asking every member that is
// concerned, at once. What a member does not answer is told in a warning.
func (h *Handler) fanout(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if err := h.serveFanout(w, r, info); err != nil {
		h.refuse(w, r, info, err)
	}
}

func (h *Handler) serveFanout(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if info.Subresource != "" {
		return pathNotFound()
	}
	switch info.Verb {
	case "get":
		return h.liveGet(w, r, info)
	case "list":
		return h.liveList(w, r, info)
	}
	return apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
}

// subject is the cached kind whose objects a live kind describes: PodMetrics
// have the names of Pods.
func (h *Handler) subject(info *request.RequestInfo) (cache.Collection, bool) {
	return h.Cache.Collection(schema.GroupVersionResource{Version: "v1", Resource: info.Resource})
}

// liveGet asks the cluster that owns the object of this name.
func (h *Handler) liveGet(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	f, err := h.liveForm(r, info, oneObject)
	if err != nil {
		return err
	}
	targets := h.liveTargets(labels.Everything())
	sourceName := info.Name
	if c, ok := h.subject(info); ok {
		obj, err := c.Get(r.Context(), keyOf(info, c.Resource()), cache.Version{})
		if err != nil {
			return err
		}
		sourceName = obj.SourceName
		targets = slices.DeleteFunc(targets, func(m Member) bool { return m.Name != obj.Cluster })
	}
	results := h.ask(r, info, targets, sourceName, "")
	for _, res := range results {
		if res.err == nil && concerned(r, res.doc) {
			setClusters(w, res.cluster)
			h.renameLive(info, res.cluster, res.doc)
			return h.writeLive(w, r, info, f, res.doc)
		}
	}
	if doc, cluster, ok := h.askAlias(r, info); ok {
		setClusters(w, cluster)
		return h.writeLive(w, r, info, f, doc)
	}
	return noAnswer(info, results)
}

// askAlias takes NAME.CLUSTER for the cluster's own object NAME, the way in which
// objects of equal names are told apart.
func (h *Handler) askAlias(r *http.Request, info *request.RequestInfo) (document, cache.ClusterName, bool) {
	if r.Header.Get(proxy.UnmanagedHeader) == "" {
		return nil, "", false
	}
	for _, m := range h.liveTargets(labels.Everything()) {
		name, ok := strings.CutSuffix(info.Name, "."+string(m.Name))
		if !ok || name == "" {
			continue
		}
		res := h.ask(r, info, []Member{m}, name, "")[0]
		meta := child(res.doc, "metadata")
		if res.err != nil || meta == nil || !concerned(r, res.doc) {
			return nil, "", false
		}
		h.renameLive(info, m.Name, res.doc)
		meta["name"] = info.Name
		ensureChild(meta, "annotations")[cache.OriginalNameAnnotation] = name
		return res.doc, m.Name, true
	}
	return nil, "", false
}

func (h *Handler) liveList(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	f, err := h.liveForm(r, info, manyObjects)
	if err != nil {
		return err
	}
	s, err := parseLiveSelection(r.URL.Query())
	if err != nil {
		return err
	}
	if err := h.authorizeSelection(r.Context(), info, &selection{labels: s.labels}); err != nil {
		return err
	}
	targets := h.liveTargets(s.labels)
	results := h.ask(r, info, targets, "", s.forwarded())
	dropManaged(r, results)
	merged := h.merge(info, s, results)
	if merged == nil {
		return noAnswer(info, results)
	}
	if revision := r.Header.Get(proxy.UnmanagedHeader); revision != "" {
		ensureChild(merged, "metadata")["resourceVersion"] = revision
	}
	warn(w, liveWarnings(info, results))
	return h.writeLiveList(w, r, info, f, merged)
}

// liveTargets are the members that the cluster requirements of a selector let
// through, in join order.
func (h *Handler) liveTargets(s labels.Selector) []Member {
	sel := selection{labels: s}
	var out []Member
	for _, m := range h.Members.List() {
		if m.Name != cache.ControlPlane && sel.mayBeIn(m.Name) {
			out = append(out, m)
		}
	}
	return out
}

// liveSelection is the part of list options that live kinds have.
type liveSelection struct {
	labels labels.Selector
	fields fields.Selector
}

func parseLiveSelection(query url.Values) (*liveSelection, error) {
	s := &liveSelection{}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, badRequest("%v", err)
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, badRequest("%v", err)
	}
	for _, req := range s.fields.Requirements() {
		if req.Field != fieldName && req.Field != fieldNamespace {
			return nil, badRequest("field label not supported: %s", req.Field)
		}
	}
	return s, nil
}

// forwarded is the label selector without what it says about clusters. Fields
// are about names as served, and judged here.
func (s *liveSelection) forwarded() string {
	requirements, selectable := s.labels.Requirements()
	if !selectable {
		return ""
	}
	rest := labels.NewSelector()
	for _, req := range requirements {
		if req.Key() != cache.ClusterLabel {
			rest = rest.Add(req)
		}
	}
	if rest.Empty() {
		return ""
	}
	return url.Values{"labelSelector": {rest.String()}}.Encode()
}

func (s *liveSelection) matches(meta document) bool {
	return s.fields.Matches(fields.Set{fieldName: text(meta, "name"), fieldNamespace: text(meta, "namespace")})
}

// live is the answer of one member.
type live struct {
	cluster cache.ClusterName
	doc     document
	err     error
}

// ask sends the request to all targets and waits for each for a bounded time.
func (h *Handler) ask(r *http.Request, info *request.RequestInfo, targets []Member, name, query string) []live {
	results := make([]live, len(targets))
	var wg sync.WaitGroup
	for i, m := range targets {
		wg.Go(func() {
			results[i] = live{cluster: m.Name}
			results[i].doc, results[i].err = h.askOne(r, info, m, name, query)
		})
	}
	wg.Wait()
	return results
}

var errNotReady = errors.New("is not ready")

func (h *Handler) askOne(r *http.Request, info *request.RequestInfo, m Member, name, query string) (document, error) {
	if !m.Ready {
		return nil, &member.UnreachableError{Cluster: m.Name, Err: errNotReady}
	}
	rt, err := h.routeTo(r.Context(), m.Name, info)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), liveWait, member.ErrTooLong)
	defer cancel()
	resp, err := rt.send(ctx, r, member.Request{
		Method: http.MethodGet, Path: memberPath(requestedGVR(info), info.Namespace, name, ""), RawQuery: query,
	}, "", jsonType)
	if err != nil {
		return nil, err
	}
	if _, err := h.parseAnswer(resp); err != nil {
		return nil, err
	}
	doc, _, err := parseJSON(resp.Body)
	return doc, err
}

// concerned says whether an object is one that the request is about: a read of
// what members have beside the control plane's templates leaves out the copies
// of templates.
func concerned(r *http.Request, doc document) bool {
	if r.Header.Get(proxy.UnmanagedHeader) == "" {
		return true
	}
	return text(child(child(doc, "metadata"), "labels"), cache.ManagedLabel) != "true"
}

func dropManaged(r *http.Request, results []live) {
	for _, res := range results {
		if res.err != nil {
			continue
		}
		res.doc["items"] = slices.DeleteFunc(list(res.doc, "items"), func(item any) bool {
			doc, ok := item.(document)
			return ok && !concerned(r, doc)
		})
	}
}

// renameLive gives an object the name and label that its subject is served with.
func (h *Handler) renameLive(info *request.RequestInfo, cluster cache.ClusterName, doc document) {
	meta := child(doc, "metadata")
	if meta == nil {
		return
	}
	name := text(meta, "name")
	if c, ok := h.subject(info); ok {
		if served := c.ServedName(cluster, text(meta, "namespace"), name); served != "" && served != name {
			meta["name"] = served
			ensureChild(meta, "annotations")[cache.OriginalNameAnnotation] = name
		}
	}
	ensureChild(meta, "labels")[cache.ClusterLabel] = string(cluster)
}

// merge makes one list; nil when no member has answered. Of two objects with
// one name, the first in join order keeps it.
func (h *Handler) merge(info *request.RequestInfo, s *liveSelection, results []live) document {
	var merged document
	items := []any{}
	taken := map[cache.Key]bool{}
	for _, res := range results {
		if res.err != nil {
			continue
		}
		if merged == nil {
			merged = document{"apiVersion": res.doc["apiVersion"], "kind": res.doc["kind"], "metadata": document{}}
		}
		for _, item := range list(res.doc, "items") {
			doc, ok := item.(document)
			if !ok {
				continue
			}
			h.renameLive(info, res.cluster, doc)
			meta := child(doc, "metadata")
			key := cache.Key{Namespace: text(meta, "namespace"), Name: text(meta, "name")}
			if taken[key] && meta != nil {
				ensureChild(meta, "annotations")[cache.OriginalNameAnnotation] = key.Name
				key.Name += "." + string(res.cluster)
				meta["name"] = key.Name
			}
			taken[key] = true
			if s.matches(meta) {
				items = append(items, doc)
			}
		}
	}
	if merged != nil {
		slices.SortStableFunc(items, func(a, b any) int { return liveKey(a).Compare(liveKey(b)) })
		merged["items"] = items
	}
	return merged
}

func liveKey(item any) cache.Key {
	doc, _ := item.(document)
	meta := child(doc, "metadata")
	return cache.Key{Namespace: text(meta, "namespace"), Name: text(meta, "name")}
}

const metricsGroup = "metrics.k8s.io"

// liveWarnings tells which members a list lacks. A member that does not serve
// the kind lacks nothing, but for metrics: its Pods and Nodes have some.
func liveWarnings(info *request.RequestInfo, results []live) []string {
	var out []string
	for _, res := range results {
		if apierrors.IsNotFound(res.err) && info.APIGroup == metricsGroup {
			res.err = fmt.Errorf("cluster %q does not serve %s, so what runs there is not shown", res.cluster, metricsGroup)
		} else if res.err == nil || apierrors.IsNotFound(res.err) {
			continue
		}
		if len(out) == maxWarnings-1 {
			return append(out, "and more clusters have not answered")
		}
		out = append(out, sanitize(liveProblem(res), maxWarning))
	}
	return out
}

func liveProblem(res live) string {
	if problem := res.err.Error(); strings.Contains(problem, string(res.cluster)) {
		return problem
	}
	return fmt.Sprintf("cluster %q: %v", res.cluster, res.err)
}

// noAnswer is what a cluster without the API would say: 404 when no member
// serves it or has the object, 503 when a member might.
func noAnswer(info *request.RequestInfo, results []live) error {
	var problems []string
	for _, res := range results {
		if res.err != nil && !apierrors.IsNotFound(res.err) {
			problems = append(problems, sanitize(liveProblem(res), maxWarning))
		}
	}
	switch {
	case len(problems) > 0:
		return unavailable(sanitize(strings.Join(problems, "; "), 2048), nil)
	case info.Name != "":
		return apierrors.NewNotFound(groupResource(info), info.Name)
	case len(results) == 0:
		return unavailable("no cluster is joined, or none that the selector names", nil)
	}
	return pathNotFound()
}
