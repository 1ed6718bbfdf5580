package engine

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/revision"
)

// stampRecord is a member's ReplicaSet; without a stamp it is a name only.
type stampRecord struct {
	metav1.ObjectMeta
	stamp  string
	owner  string // name of the Deployment
	counts revision.Counts
}

const byStamp = "stamp"

func recordStamp(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	r := &stampRecord{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion(), UID: u.GetUID()}}
	owner := metav1.GetControllerOf(u)
	r.stamp = u.GetAnnotations()[marks.Revision]
	if r.stamp == "" || owner == nil || owner.Kind != "Deployment" {
		r.stamp = ""
		return r, nil
	}
	r.owner = owner.Name
	count := func(path ...string) int32 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return int32(n)
	}
	r.counts = revision.Counts{
		Desired: count("spec", "replicas"), Replicas: count("status", "replicas"), FullyLabeled: count("status", "fullyLabeledReplicas"),
		Ready: count("status", "readyReplicas"), Available: count("status", "availableReplicas"),
	}
	return r, nil
}

// watchRevisionsLocked counts the members' ReplicaSets by stamp.
func (m *member) watchRevisionsLocked(ctx context.Context) {
	if m.revision != nil {
		return
	}
	m.revision = m.newInformer(m.client.Resource(replicaSets), nil)
	notify := func(obj any, initial bool) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if r, ok := obj.(*stampRecord); ok && r.owner != "" {
			m.engine.statusQueue.AddAs(marks.Key{GroupVersionKind: deploymentGVK, Namespace: r.Namespace, Name: r.owner}, levelOf(initial))
		}
	}
	_, addErr := m.revision.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: notify, DeleteFunc: func(obj any) { notify(obj, false) },
		UpdateFunc: func(_, obj any) { notify(obj, false) },
	})
	err := errors.Join(addErr, m.revision.SetTransform(recordStamp), m.revision.AddIndexers(cache.Indexers{
		byStamp: func(obj any) ([]string, error) {
			if r, ok := obj.(*stampRecord); ok && r.stamp != "" {
				return []string{r.Namespace + "/" + r.stamp}, nil
			}
			return nil, nil
		},
	}))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Revisions cannot be watched")
		return
	}
	informer := m.revision
	m.wg.Go(func() { informer.Run(m.ctx.Done()) })
}

func (m *member) countsOf(namespace, stamp string) []revision.Counts {
	m.mu.RLock()
	informer := m.revision
	m.mu.RUnlock()
	if informer == nil {
		return nil
	}
	objs, err := informer.GetIndexer().ByIndex(byStamp, namespace+"/"+stamp)
	if err != nil {
		return nil
	}
	var out []revision.Counts
	for _, obj := range objs {
		out = append(out, obj.(*stampRecord).counts)
	}
	return out
}

// revisionPause is the least time between two writes of a Deployment's
// revisions.
const revisionPause = 2 * time.Second

// countRevisions writes the sums over the members on the control plane's
// ReplicaSets.
func (e *Engine) countRevisions(ctx context.Context, key marks.Key, t *template) error {
	type update struct {
		r   *revisionRecord
		sum revision.Counts
	}
	var updates []update
	for _, r := range e.revisions.of(t.UID) {
		var parts []revision.Counts
		for _, m := range e.memberList() {
			parts = append(parts, m.countsOf(key.Namespace, r.revision().Stamp())...)
		}
		sum := revision.Sum(parts)
		have := r.sum
		have.Desired = r.spec
		if len(parts) == 0 && r.observed == 0 {
			continue // not in the members yet
		}
		if (sum != have || r.observed < r.Generation) && r.DeletionTimestamp == nil {
			updates = append(updates, update{r, sum})
		}
	}
	if len(updates) == 0 {
		return nil
	}
	if wait := time.Until(e.memo(key, t.UID).revisions.Add(revisionPause)); wait > 0 {
		e.statusQueue.AddAfter(key, wait)
		return nil
	}
	e.setMemo(key, func(m *statusMemo) { m.uid, m.revisions = t.UID, time.Now() })
	for _, u := range updates {
		if err := e.writeCounts(ctx, key, u.r, u.sum); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if u.sum.Desired == 0 && u.sum.Replicas == 0 {
			// It may be beyond the history limit, now that it is empty.
			e.templateQueue.Add(e.canonical(key))
		}
	}
	return nil
}

func (e *Engine) writeCounts(ctx context.Context, key marks.Key, r *revisionRecord, sum revision.Counts) error {
	uid := map[string]any{"uid": r.UID}
	if r.spec != sum.Desired {
		var err error
		if r, err = e.patchReplicaSet(ctx, key, r, map[string]any{"metadata": uid, "spec": map[string]any{"replicas": sum.Desired}}); err != nil {
			return err
		}
	}
	have := r.sum
	have.Desired = sum.Desired
	if have == sum && r.observed >= r.Generation {
		return nil
	}
	_, err := e.patchReplicaSet(ctx, key, r, map[string]any{"metadata": uid, "status": map[string]any{
		"replicas": sum.Replicas, "fullyLabeledReplicas": sum.FullyLabeled,
		"readyReplicas": sum.Ready, "availableReplicas": sum.Available, "observedGeneration": r.Generation,
	}}, "status")
	return err
}
