package engine

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

// copyRecord is what is cached of an object in a member: no content, only what
// tells drift from agreement, and the status where it is aggregated.
type copyRecord struct {
	metav1.ObjectMeta // name, namespace, UID, resourceVersion, generation, timestamps, finalizers
	owned             bool
	held              bool
	templateUID       types.UID
	selects           types.UID // of a Job with a selector of its own
	// claims is a hash over what server-side apply says we own. Whoever
	// changes a value that is ours takes it out of our claims, so an equal
	// hash means that nobody has.
	claims uint64
	// projection is a hash over the values at our claims: where it equals the
	// hash of what would be applied, there is nothing to apply.
	projection uint64
	// replicas, and which of our managers claims them.
	replicas    int32
	contentSays bool
	weSay       bool
	rollout     *rolloutRecord // of Deployments and StatefulSets
	quota       *quotaRecord   // of ResourceQuotas
	status      []byte
	// object is the whole copy, of kinds that scripts are asked about.
	object []byte
}

// transformCopy makes the records of one kind.
func (m *member) transformCopy(gvk schema.GroupVersionKind) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		r, err := recordCopy(m.engine.id, gvk, u)
		if err != nil {
			return nil, err
		}
		return r, m.engine.look(gvk, u, r)
	}
}

func recordCopy(controlPlane string, gvk schema.GroupVersionKind, u *unstructured.Unstructured) (*copyRecord, error) {
	annotations := u.GetAnnotations()
	key := marks.Key{GroupVersionKind: gvk, Namespace: u.GetNamespace(), Name: u.GetName()}
	r := &copyRecord{
		ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
			ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
			DeletionTimestamp: u.GetDeletionTimestamp(), CreationTimestamp: u.GetCreationTimestamp(),
			Finalizers: u.GetFinalizers(),
		},
		owned:       marks.Owned(controlPlane, key, u.GetLabels(), annotations),
		held:        annotations[marks.Hold] != "",
		templateUID: types.UID(annotations[marks.TemplateUID]),
		selects:     types.UID(retain.Selects(u)),
	}
	if n, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas"); err == nil && found {
		r.replicas = int32(n)
	}
	projected, err := r.readClaims(key, u)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", key, err)
	}
	if divisible(gvk.GroupKind()) {
		if r.rollout, err = recordRollout(u, projected); err != nil {
			return nil, fmt.Errorf("copy %s: %w", key, err)
		}
	}
	if gvk.GroupKind() == quotaKind {
		if r.quota, err = recordQuota(u); err != nil {
			return nil, fmt.Errorf("copy %s: %w", key, err)
		}
	}
	if status, ok := u.Object["status"]; ok && hasStatus(gvk.GroupKind()) {
		raw, err := json.Marshal(status)
		if err != nil {
			return nil, fmt.Errorf("copy %s: status: %w", key, err)
		}
		r.status = raw
	}
	return r, nil
}

// readClaims hashes what is ours, and returns the values of it. Replicas are
// left out: they change hands.
func (r *copyRecord) readClaims(key marks.Key, u *unstructured.Unstructured) (map[string]any, error) {
	raw := claimsOf(marks.Manager, u.GetManagedFields())
	if raw == nil {
		return nil, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("fieldsV1: %w", err)
	}
	if divisible(key.GroupKind()) {
		r.weSay = claimsReplicas(u.GetManagedFields())
		if spec, ok := fields["f:spec"].(map[string]any); ok {
			_, r.contentSays = spec["f:replicas"]
			delete(spec, "f:replicas")
		}
	}
	var err error
	if r.claims, err = hashOf(fields); err != nil {
		return nil, err
	}
	projected := project(u.Object, fields)
	r.projection, err = appliedHash(projected)
	return projected, err
}

func claimsOf(manager string, entries []metav1.ManagedFieldsEntry) []byte {
	for _, e := range entries {
		if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" && e.FieldsV1 != nil {
			return e.FieldsV1.GetRawBytes()
		}
	}
	return nil
}

// appliedHash is a hash over what an apply says, but for names, which are not
// claims, and provenance, which is no reason to write.
func appliedHash(object map[string]any) (uint64, error) {
	said := map[string]any{}
	for k, v := range object {
		if k == "apiVersion" || k == "kind" || k == "metadata" {
			continue
		}
		said[k] = v
	}
	meta, _ := object["metadata"].(map[string]any)
	if l, ok := meta["labels"].(map[string]any); ok && len(l) > 0 {
		said["labels"] = l
	}
	if a, ok := meta["annotations"].(map[string]any); ok {
		kept := map[string]any{}
		for k, v := range a {
			if k != marks.TemplateRevision && k != marks.Epoch {
				kept[k] = v
			}
		}
		said["annotations"] = kept
	}
	return hashOf(said)
}

func (r *copyRecord) decodeStatus() (map[string]any, error) {
	if r == nil || r.status == nil {
		return nil, nil
	}
	var u unstructured.Unstructured
	wrapped := append(append([]byte(`{"apiVersion":"v1","kind":"x","status":`), r.status...), '}')
	if err := u.UnmarshalJSON(wrapped); err != nil {
		return nil, fmt.Errorf("status of %s/%s: %w", r.Namespace, r.Name, err)
	}
	status, _ := u.Object["status"].(map[string]any)
	return status, nil
}
