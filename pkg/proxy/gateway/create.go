package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	generate "k8s.io/apiserver/pkg/storage/names"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

const (
	// generateAttempts bounds the search for a free generated name.
	generateAttempts = 8
	// prerequisiteWait is how long a creation waits for what the
	// federation is about to bring to the cluster.
	prerequisiteWait  = 5 * time.Second
	prerequisitePause = 250 * time.Millisecond
)

// create puts a new object into a cluster.
func (h *Handler) create(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) {
	if err := h.serveCreate(w, r, info, c); err != nil {
		h.refuse(w, r, info, err)
	}
}

func (h *Handler) serveCreate(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection) error {
	if info.Name != "" {
		return apierrors.NewMethodNotSupported(groupResource(info), info.Verb)
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	doc, complaints, err := h.decodeObject(r, body, c.Resource().Encoding)
	if err != nil {
		return err
	}
	if err := complain(w, r, complaints); err != nil {
		return err
	}
	if err := checkName(doc, info); err != nil && text(child(doc, "metadata"), "name") == "" {
		return err
	}
	n, err := h.newcomer(r.Context(), info, c, doc)
	if err != nil {
		return err
	}
	generated := text(n.meta, "name") == "" && text(n.meta, "generateName") != ""
	for attempt := 1; ; attempt++ {
		if generated {
			n.meta["name"] = generate.SimpleNameGenerator.GenerateName(text(n.meta, "generateName"))
		}
		resp, err := h.createNamed(r, info, c, n)
		if h.elsewhere(r.Context(), info, n, err) {
			attempt--
			continue
		}
		if generated && attempt < generateAttempts && isTaken(resp, err) {
			continue
		}
		if err != nil {
			return err
		}
		return h.answerCreated(w, r, info, c, n, resp)
	}
}

// elsewhere turns a newcomer that may be anywhere to another member, when the
// one that was chosen has surely not seen it.
func (h *Handler) elsewhere(ctx context.Context, info *request.RequestInfo, n *newcomer, err error) bool {
	var gone *member.UnreachableError
	if !n.free || !errors.As(err, &gone) || gone.Sent {
		return false
	}
	n.tried = append(n.tried, n.member.Name)
	other, err := h.leastLoaded(n.tried)
	if err != nil {
		return false
	}
	rt, err := h.routeTo(ctx, other, info)
	if err != nil {
		return false
	}
	n.route = rt
	return true
}

// isTaken says that a name was refused because it exists.
func isTaken(resp *member.Response, err error) bool {
	if err != nil {
		return apierrors.IsAlreadyExists(err)
	}
	if resp.Code != http.StatusConflict {
		return false
	}
	return strings.Contains(string(resp.Body), string(metav1.StatusReasonAlreadyExists))
}

// newcomer is an object on its way into a cluster.
type newcomer struct {
	route
	doc  document
	meta document
	// free is set when the object may be in any cluster.
	free  bool
	tried []cache.ClusterName
	// release gives the reserved name back.
	release func()
}

// newcomer chooses the cluster and maps the references of the object to it.
func (h *Handler) newcomer(ctx context.Context, info *request.RequestInfo, c cache.Collection, doc document) (*newcomer, error) {
	meta, err := metadataOf(doc)
	if err != nil {
		return nil, err
	}
	barred, err := h.barred(ctx, info)
	if err != nil {
		return nil, err
	}
	cluster, free, err := h.place(ctx, info, c, doc, barred)
	if err != nil {
		return nil, err
	}
	if labels := child(meta, "labels"); labels != nil {
		delete(labels, cache.ClusterLabel)
	}
	if annotations := child(meta, "annotations"); annotations != nil {
		delete(annotations, cache.OriginalNameAnnotation)
	}
	n := &newcomer{doc: doc, meta: meta, free: free, tried: barred, release: func() {}}
	for {
		n.route, err = h.routeTo(ctx, cluster, info)
		if !free || !apierrors.IsForbidden(err) {
			break
		}
		// Not a cluster of this user's: the next best one may be.
		n.tried = append(n.tried, cluster)
		next, none := h.leastLoaded(n.tried)
		if none != nil {
			break
		}
		cluster = next
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// reserve makes sure that the name will be served bare.
func (h *Handler) reserve(ctx context.Context, info *request.RequestInfo, c cache.Collection, n *newcomer) error {
	name := text(n.meta, "name")
	if name == "" {
		return nil // the member refuses it
	}
	res := c.Resource()
	key := cache.Key{Name: name}
	if res.Namespaced {
		key.Namespace = info.Namespace
	}
	exists := apierrors.NewAlreadyExists(groupResource(info), name)
	adopt := adopting(res, n.doc)
	switch obj, err := c.Get(ctx, key, cache.Version{}); {
	case err == nil && adopt && obj.Cluster != cache.ControlPlane:
		return nil // the bare name is the control plane's as soon as it has the object
	case err == nil && obj.Cluster == n.member.Name && obj.SourceName == name:
		// Its cluster knows whether it is still there: the end of an object
		// may be seen here later than the answer to its deletion.
		return nil
	case err == nil:
		return exists
	case !errors.Is(err, cache.ErrNotFound):
		return err
	}
	release, err := c.Reserve(key, n.member.Name)
	if errors.Is(err, cache.ErrHeld) {
		holder, held := c.Holder(key)
		if held && holder == n.member.Name {
			// Kept for this very cluster after a deletion: the new object
			// gets the bare name although others have one of the name too.
			return nil
		}
		if adopt && held && holder != cache.ControlPlane {
			return nil
		}
		exists.ErrStatus.Message += fmt.Sprintf(": another cluster has an object of this name, or is creating one (%s)", clusterText(holder))
		return exists
	}
	if err != nil {
		return err
	}
	n.release = release
	return nil
}

// conflictAnnotation on a template says what becomes of members' own objects of
// its name; adoptValue has them adopted.
const (
	conflictAnnotation = "work.karmada.io/conflict-resolution"
	adoptValue         = "overwrite"
)

// adopting says whether a new template of a dual kind asks for the members' own
// objects of its name.
func adopting(res cache.Resource, doc document) bool {
	annotations := child(child(doc, "metadata"), "annotations")
	return res.FromControlPlane && res.Resource != "events" && strings.EqualFold(text(annotations, conflictAnnotation), adoptValue)
}

// createNamed reserves the name and sends the object.
func (h *Handler) createNamed(r *http.Request, info *request.RequestInfo, c cache.Collection, n *newcomer) (*member.Response, error) {
	if n.free {
		if err := n.transport.Answers(r.Context()); err != nil {
			return nil, err
		}
	}
	if err := h.reserve(r.Context(), info, c, n); err != nil {
		return nil, err
	}
	body, err := json.Marshal(n.doc)
	if err != nil {
		n.release()
		return nil, fmt.Errorf("encoding %s: %w", c.Resource().Kind, err)
	}
	resp, err := h.whenReady(r.Context(), n.member.Name, info.Namespace, func(ctx context.Context) (*member.Response, error) {
		return n.send(ctx, r, member.Request{
			Method: http.MethodPost, Path: memberPath(requestedGVR(info), info.Namespace, "", ""),
			RawQuery: r.URL.RawQuery, Body: body,
		}, jsonType, accept(c.Resource()))
	})
	if err != nil || resp.Code >= 300 {
		n.release()
	}
	return resp, err
}

// whenReady sends a creation, and again for a while as long as the member
// refuses it because its namespace or service account is not there yet, or its
// share of a quota is too small: they come from the federation, and such a
// refusal has surely done nothing.
func (h *Handler) whenReady(ctx context.Context, cluster cache.ClusterName, namespace string, send func(context.Context) (*member.Response, error)) (*member.Response, error) {
	room := asking{h: h, cluster: cluster, namespace: namespace}
	return sendUntil(ctx, send, func(resp *member.Response) bool { return h.lacksPrerequisite(resp) || room.comes(ctx, resp) })
}

// sendUntil sends a request for a while, until the answer is not one to wait after.
func sendUntil(ctx context.Context, send func(context.Context) (*member.Response, error), waits func(*member.Response) bool) (*member.Response, error) {
	deadline := time.Now().Add(prerequisiteWait)
	for {
		resp, err := send(ctx)
		if err != nil || time.Now().After(deadline) || !waits(resp) {
			return resp, err
		}
		klog.FromContext(ctx).V(3).Info("Waiting for the namespace, service account or quota of an object")
		select {
		case <-ctx.Done():
			return resp, nil
		case <-time.After(prerequisitePause):
		}
	}
}

// lacksPrerequisite recognises the refusals of a member that a namespace or a
// service account, and nothing else, keeps from creating.
func (h *Handler) lacksPrerequisite(resp *member.Response) bool {
	if resp.Code != http.StatusNotFound && resp.Code != http.StatusForbidden {
		return false
	}
	_, err := h.parseAnswer(resp)
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return false
	}
	s := status.ErrStatus
	if s.Reason == metav1.StatusReasonNotFound {
		return s.Details != nil && s.Details.Kind == "namespaces"
	}
	return s.Reason == metav1.StatusReasonForbidden && strings.Contains(s.Message, "error looking up service account")
}

// answerCreated answers with the new object as served. The name stays reserved
// until it is.
func (h *Handler) answerCreated(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, n *newcomer, resp *member.Response) error {
	defer n.release()
	name := text(n.meta, "name")
	id := &identity{
		res: c.Resource(), cluster: n.member.Name, namespace: info.Namespace,
		servedName: name, sourceName: name, uid: types.UID(text(n.meta, "uid")),
	}
	return h.answerObject(w, r, info, c, id, resp)
}

// applyNew is a server-side apply of an object that is not there: a creation
// under a fixed name.
func (h *Handler) applyNew(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, c cache.Collection, doc document) error {
	if err := checkName(doc, info); err != nil {
		return err
	}
	meta, err := metadataOf(doc)
	if err != nil {
		return err
	}
	if uid := text(meta, "uid"); uid != "" {
		return apierrors.NewConflict(groupResource(info), info.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	meta["name"] = info.Name
	n, err := h.newcomer(r.Context(), info, c, doc)
	if err != nil {
		return err
	}
	if err := h.reserve(r.Context(), info, c, n); err != nil {
		return err
	}
	path := memberPath(requestedGVR(info), info.Namespace, info.Name, "")
	resp, err := h.whenReady(r.Context(), n.member.Name, info.Namespace, func(context.Context) (*member.Response, error) {
		return n.sendPatch(r, c.Resource(), path, n.doc, types.ApplyYAMLPatchType)
	})
	if err != nil {
		n.release()
		return err
	}
	return h.answerCreated(w, r, info, c, n, resp)
}
