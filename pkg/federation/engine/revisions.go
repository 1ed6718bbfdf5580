package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/revision"
)

var replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")

// revisionCache holds what is needed of the control plane's ReplicaSets, or of
// its ControllerRevisions.
type revisionCache struct {
	read     func(*unstructured.Unstructured) *revisionRecord
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	written map[types.UID]*revisionRecord // by own UID; newer than the cache
}

// revisionRecord is a ReplicaSet or a ControllerRevision in the control plane.
type revisionRecord struct {
	metav1.ObjectMeta
	owner  types.UID
	hash   string
	number int64
	spec   int32           // of a ReplicaSet
	sum    revision.Counts // of a ReplicaSet
	// observed is a ReplicaSet's status.observedGeneration.
	observed int64
	digest   uint64 // of a ControllerRevision's data
}

const byOwner = "owner"

func newRevisionCache(e *Engine, gvr schema.GroupVersionResource, read func(*unstructured.Unstructured) *revisionRecord) *revisionCache {
	c := &revisionCache{read: read, informer: newInformer(e.client, gvr), written: map[types.UID]*revisionRecord{}}
	for _, err := range []error{
		c.informer.SetTransform(func(obj any) (any, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return obj, nil
			}
			return read(u), nil
		}),
		c.informer.AddIndexers(cache.Indexers{byOwner: func(obj any) ([]string, error) {
			if r, ok := obj.(*revisionRecord); ok && r.owner != "" {
				return []string{string(r.owner)}, nil
			}
			return nil, nil
		}}),
	} {
		if err != nil {
			panic(err) // only on an informer that has been started
		}
	}
	return c
}

func recordOf(u *unstructured.Unstructured, owners ...string) *revisionRecord {
	r := &revisionRecord{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		Generation: u.GetGeneration(), DeletionTimestamp: u.GetDeletionTimestamp(),
	}}
	if c := metav1.GetControllerOf(u); c != nil && slices.Contains(owners, c.Kind) {
		r.owner = c.UID
	}
	return r
}

func replicaSetOf(u *unstructured.Unstructured) *revisionRecord {
	r := recordOf(u, "Deployment")
	r.hash = u.GetLabels()[revision.HashLabel]
	n, err := strconv.ParseInt(u.GetAnnotations()[revision.NumberAnnotation], 10, 64)
	if err != nil {
		n = 0 // not numbered yet: older than all that are
	}
	r.number = n
	count := func(path ...string) int32 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return int32(n)
	}
	r.spec = count("spec", "replicas")
	r.observed = int64(count("status", "observedGeneration"))
	r.sum = revision.Counts{
		Replicas: count("status", "replicas"), FullyLabeled: count("status", "fullyLabeledReplicas"),
		Ready: count("status", "readyReplicas"), Available: count("status", "availableReplicas"),
	}
	return r
}

func (r *revisionRecord) revision() revision.ReplicaSet {
	return revision.ReplicaSet{
		Name: r.Name, UID: r.UID, Hash: r.hash, Number: r.number,
		Desired: r.spec, Present: r.sum.Replicas, Deleting: r.DeletionTimestamp != nil,
	}
}

// of lists the revisions of a template.
func (c *revisionCache) of(owner types.UID) []*revisionRecord {
	objs, err := c.informer.GetIndexer().ByIndex(byOwner, string(owner))
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[types.UID]bool{}
	out := make([]*revisionRecord, 0, len(objs)+1)
	for _, obj := range objs {
		r := obj.(*revisionRecord)
		seen[r.UID] = true
		if w := c.written[r.UID]; w != nil {
			if newer(w.ResourceVersion, r.ResourceVersion) {
				r = w
			} else {
				delete(c.written, r.UID)
			}
		}
		out = append(out, r)
	}
	for uid, w := range c.written {
		if w.owner == owner && !seen[uid] {
			out = append(out, w)
		}
	}
	return out
}

func (c *revisionCache) remember(u *unstructured.Unstructured) *revisionRecord {
	r := c.read(u)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[r.UID] = r
	return r
}

func (c *revisionCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.written, uid)
}

// ensureRevision keeps the ReplicaSets of a Deployment and returns the stamp of
// its present revision.
func (e *Engine) ensureRevision(ctx context.Context, key marks.Key, t *template, s shape) (string, error) {
	u, err := t.decode()
	if err != nil {
		return "", err
	}
	podTemplate, found, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil || !found {
		return "", fmt.Errorf("%s has no pod template: %w", key, err)
	}
	hash, err := revision.Hash(podTemplate)
	if err != nil {
		return "", err
	}
	known := map[types.UID]*revisionRecord{}
	var sets []revision.ReplicaSet
	for _, r := range e.revisions.of(t.UID) {
		known[r.UID] = r
		sets = append(sets, r.revision())
	}
	plan := revision.Next(revision.Deployment{Name: t.Name, Hash: hash, Paused: s.Spec.Paused, HistoryLimit: s.Spec.RevisionHistoryLimit}, sets)
	switch {
	case plan.Create != "":
		r, err := e.createRevision(ctx, key, t, u, plan, hash)
		if err != nil {
			return "", err
		}
		plan.Current = &r
	case plan.Current != nil && plan.Current.Number != plan.Number:
		if err := e.renumber(ctx, key, known[plan.Current.UID], plan.Number); err != nil {
			return "", err
		}
	}
	for _, r := range plan.Delete {
		err := e.client.Resource(replicaSets).Namespace(key.Namespace).Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("old revision %s of %s: %w", r.Name, key, err)
		}
		e.revisions.forget(r.UID)
	}
	if plan.Current == nil {
		return "", nil
	}
	if err := e.numberDeployment(ctx, key, t, plan.Number); err != nil {
		return "", err
	}
	return plan.Current.Stamp(), nil
}

func (e *Engine) createRevision(ctx context.Context, key marks.Key, t *template, u *unstructured.Unstructured, plan revision.Plan, hash string) (revision.ReplicaSet, error) {
	rs, err := revisionObject(t, u, plan, hash)
	if err != nil {
		return revision.ReplicaSet{}, fmt.Errorf("revision of %s: %w", key, err)
	}
	writes.WithLabelValues("revision").Inc()
	client := e.client.Resource(replicaSets).Namespace(key.Namespace)
	got, err := client.Create(ctx, rs, metav1.CreateOptions{FieldManager: marks.Manager})
	if apierrors.IsAlreadyExists(err) {
		if there, adoptErr := adoptRevision(ctx, client, rs); adoptErr != nil || there != nil {
			got, err = there, adoptErr
		}
	}
	if err != nil {
		return revision.ReplicaSet{}, fmt.Errorf("revision of %s: %w", key, err)
	}
	return e.revisions.remember(got).revision(), nil
}

// revisionObject is the ReplicaSet that a deployment controller would make. The
// first one is to have all replicas; those of a later one are counted.
func revisionObject(t *template, u *unstructured.Unstructured, plan revision.Plan, hash string) (*unstructured.Unstructured, error) {
	podTemplate, _, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil {
		return nil, err
	}
	selector, _, err := unstructured.NestedMap(u.Object, "spec", "selector")
	if err != nil {
		return nil, err
	}
	if selector == nil {
		selector = map[string]any{}
	}
	if err := unstructured.SetNestedField(podTemplate, hash, "metadata", "labels", revision.HashLabel); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(selector, hash, "matchLabels", revision.HashLabel); err != nil {
		return nil, err
	}
	labels, _, err := unstructured.NestedMap(podTemplate, "metadata", "labels")
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{revision.NumberAnnotation: strconv.FormatInt(plan.Number, 10)}
	if cause := u.GetAnnotations()["kubernetes.io/change-cause"]; cause != "" {
		annotations["kubernetes.io/change-cause"] = cause
	}
	replicas := int64(0)
	if plan.Number == 1 {
		replicas = int64(t.replicas)
	}
	spec := map[string]any{"replicas": replicas, "selector": selector, "template": podTemplate}
	if n, found, err := unstructured.NestedInt64(u.Object, "spec", "minReadySeconds"); err == nil && found {
		spec["minReadySeconds"] = n
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"name": plan.Create, "namespace": t.Namespace, "labels": labels, "annotations": annotations,
			"ownerReferences": []any{map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "name": t.Name, "uid": string(t.UID),
				"controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": spec,
	}}, nil
}

// adoptRevision takes over a revision of that name that nobody controls, as
// the controllers of one cluster do. It returns nil for one that is another's.
func adoptRevision(ctx context.Context, client dynamic.ResourceInterface, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	switch is, ours := metav1.GetControllerOf(there), metav1.GetControllerOf(wanted); {
	case is != nil && is.UID == ours.UID:
		return there, nil // the cache is behind
	case is != nil || there.GetDeletionTimestamp() != nil:
		return nil, nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": there.GetUID(), "resourceVersion": there.GetResourceVersion(), "labels": wanted.GetLabels(),
		"ownerReferences": append(there.GetOwnerReferences(), wanted.GetOwnerReferences()...),
	}})
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, there.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: marks.Manager})
}

// renumber makes an earlier revision the newest one.
func (e *Engine) renumber(ctx context.Context, key marks.Key, r *revisionRecord, number int64) error {
	patch := map[string]any{"metadata": map[string]any{"uid": r.UID, "annotations": map[string]any{
		revision.NumberAnnotation: strconv.FormatInt(number, 10),
	}}}
	_, err := e.patchReplicaSet(ctx, key, r, patch)
	return err
}

func (e *Engine) patchReplicaSet(ctx context.Context, key marks.Key, r *revisionRecord, patch map[string]any, subresources ...string) (*revisionRecord, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("revision %s of %s: %w", r.Name, key, err)
	}
	writes.WithLabelValues("revision").Inc()
	manager := marks.Manager
	if len(subresources) > 0 {
		manager = marks.StatusManager
	}
	got, err := e.client.Resource(replicaSets).Namespace(key.Namespace).Patch(ctx, r.Name, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		e.revisions.forget(r.UID)
		return nil, fmt.Errorf("revision %s of %s: %w", r.Name, key, err)
	}
	return e.revisions.remember(got), nil
}

// numberDeployment writes the revision on the Deployment, where clients read it,
// by way of the status: any other write of an annotation makes a new generation.
func (e *Engine) numberDeployment(ctx context.Context, key marks.Key, t *template, number int64) error {
	want := strconv.FormatInt(number, 10)
	if t.Annotations[revisionAnnotation] == want {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": t.UID, "annotations": map[string]any{revisionAnnotation: want}}})
	if err != nil {
		return fmt.Errorf("revision of %s: %w", key, err)
	}
	writes.WithLabelValues("revision").Inc()
	_, err = e.client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(key.Namespace).
		Patch(ctx, key.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: marks.StatusManager}, "status")
	if err != nil {
		return fmt.Errorf("revision of %s: %w", key, err)
	}
	return nil
}
