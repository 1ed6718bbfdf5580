package engine

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/revision"
)

var controllerRevisions = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")

// hasHistory: kinds whose revisions are ControllerRevisions.
func hasHistory(gk schema.GroupKind) bool {
	return gk.Group == "apps" && (gk.Kind == "StatefulSet" || gk.Kind == "DaemonSet")
}

// historyLabel is where the hash of a revision stands.
func historyLabel(kind string) string {
	if kind == "DaemonSet" {
		return revision.DaemonSetHashLabel
	}
	return revision.StatefulSetHashLabel
}

func controllerRevisionOf(u *unstructured.Unstructured) *revisionRecord {
	r := recordOf(u, "StatefulSet", "DaemonSet")
	if c := metav1.GetControllerOf(u); c != nil {
		r.hash = u.GetLabels()[historyLabel(c.Kind)]
	}
	r.number, _, _ = unstructured.NestedInt64(u.Object, "revision")
	// Maps are encoded in order, as in what is compared with.
	if data, err := json.Marshal(u.Object["data"]); err == nil {
		r.digest = revision.Digest(data)
	}
	return r
}

// ensureHistory keeps the ControllerRevisions of a StatefulSet or DaemonSet.
func (e *Engine) ensureHistory(ctx context.Context, key marks.Key, t *template, s shape) error {
	u, err := t.decode()
	if err != nil {
		return err
	}
	podTemplate, found, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil || !found {
		return fmt.Errorf("%s has no pod template: %w", key, err)
	}
	data, err := revision.Data(podTemplate)
	if err != nil {
		return fmt.Errorf("revision of %s: %w", key, err)
	}
	known := e.history.of(t.UID)
	hash, err := historyHash(key.Kind, data, known)
	if err != nil {
		return fmt.Errorf("revision of %s: %w", key, err)
	}
	records := map[types.UID]*revisionRecord{}
	var sets []revision.ReplicaSet
	for _, r := range known {
		records[r.UID] = r
		sets = append(sets, r.revision())
	}
	plan := revision.Next(revision.Deployment{Name: t.Name, Hash: hash, HistoryLimit: s.Spec.RevisionHistoryLimit}, sets)
	client := e.client.Resource(controllerRevisions).Namespace(key.Namespace)
	switch {
	case plan.Create != "":
		writes.WithLabelValues("revision").Inc()
		made, err := historyObject(key, t, u, data, hash, plan)
		if err != nil {
			return fmt.Errorf("revision of %s: %w", key, err)
		}
		got, err := client.Create(ctx, made, metav1.CreateOptions{FieldManager: marks.Manager})
		if apierrors.IsAlreadyExists(err) {
			if got, err = adoptRevision(ctx, client, made); err == nil && got == nil {
				// A name that is taken costs the history and must not hold the workload.
				break
			}
		}
		if err != nil {
			return fmt.Errorf("revision of %s: %w", key, err)
		}
		e.history.remember(got)
	case plan.Current.Number != plan.Number:
		if err := e.renumberHistory(ctx, key, records[plan.Current.UID], plan.Number); err != nil {
			return err
		}
	}
	for _, r := range plan.Delete {
		err := client.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("old revision %s of %s: %w", r.Name, key, err)
		}
		e.history.forget(r.UID)
	}
	return nil
}

// historyHash is the hash of a known revision with this data, or that of a new one.
func historyHash(kind string, data []byte, known []*revisionRecord) (string, error) {
	digest := revision.Digest(data)
	taken := map[string]bool{}
	for _, r := range known {
		if r.digest == digest && r.hash != "" && r.DeletionTimestamp == nil {
			return r.hash, nil
		}
		taken[r.hash] = true
	}
	return revision.HistoryHash(kind, data, func(h string) bool { return taken[h] })
}

// historyObject is the ControllerRevision that the controller of a cluster
// would make.
func historyObject(key marks.Key, t *template, u *unstructured.Unstructured, data []byte, hash string, plan revision.Plan) (*unstructured.Unstructured, error) {
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	labels := map[string]any{}
	of, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	for k, v := range of {
		labels[k] = v
	}
	labels[historyLabel(key.Kind)] = hash
	meta := map[string]any{
		"name": plan.Create, "namespace": t.Namespace, "labels": labels,
		"ownerReferences": []any{map[string]any{
			"apiVersion": "apps/v1", "kind": key.Kind, "name": t.Name, "uid": string(t.UID),
			"controller": true, "blockOwnerDeletion": true,
		}},
	}
	if cause := u.GetAnnotations()["kubernetes.io/change-cause"]; cause != "" {
		meta["annotations"] = map[string]any{"kubernetes.io/change-cause": cause}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta,
		"data": content, "revision": plan.Number,
	}}, nil
}

// renumberHistory makes an earlier revision the newest one.
func (e *Engine) renumberHistory(ctx context.Context, key marks.Key, r *revisionRecord, number int64) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID}, "revision": number})
	if err != nil {
		return fmt.Errorf("revision %s of %s: %w", r.Name, key, err)
	}
	writes.WithLabelValues("revision").Inc()
	got, err := e.client.Resource(controllerRevisions).Namespace(key.Namespace).Patch(ctx, r.Name, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: marks.Manager})
	if err != nil {
		e.history.forget(r.UID)
		return fmt.Errorf("revision %s of %s: %w", r.Name, key, err)
	}
	e.history.remember(got)
	return nil
}
