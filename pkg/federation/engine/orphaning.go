package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/revision"
)

// orphaning remembers the templates whose deletion is to leave dependents
// alone, in the members as well. The request is a finalizer that the garbage collector takes off when
// its own part is done, which may be before the members are looked at.
type orphaning struct {
	mu   sync.Mutex
	uids map[marks.Key]types.UID
}

// see takes note of a template as it comes from the watch.
func (o *orphaning) see(key marks.Key, t *template) {
	if t.DeletionTimestamp == nil || !slices.Contains(t.Finalizers, metav1.FinalizerOrphanDependents) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uids == nil {
		o.uids = map[marks.Key]types.UID{}
	}
	o.uids[key] = t.UID
}

// asked says whether the deletion of this very template asked for it.
func (o *orphaning) asked(key marks.Key, uid types.UID, finalizers []string) bool {
	if slices.Contains(finalizers, metav1.FinalizerOrphanDependents) {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return uid != "" && o.uids[key] == uid
}

// forget is for a template that is gone.
func (o *orphaning) forget(key marks.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.uids, key)
}

// dropRevisions deletes the control plane's revisions of a template that left
// its dependents alone: the members' own stand for themselves from then on.
func (e *Engine) dropRevisions(ctx context.Context, key marks.Key, uid types.UID) error {
	gvr := replicaSets
	switch {
	case hasHistory(key.GroupKind()):
		gvr = controllerRevisions
	case key.GroupKind() != deploymentKind:
		return nil
	}
	client := e.client.Resource(gvr).Namespace(key.Namespace)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("revisions of %s: %w", key, err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		if !wasRevision(key, uid, r) {
			continue
		}
		err := client.Delete(ctx, r.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.GetUID()))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("revision %s of %s: %w", r.GetName(), key, err)
		}
		e.revisions.forget(r.GetUID())
		e.history.forget(r.GetUID())
	}
	return nil
}

// wasRevision says whether the engine has made an object for a revision of the
// template, whose garbage collector may have taken off the owner.
func wasRevision(key marks.Key, uid types.UID, r *unstructured.Unstructured) bool {
	if c := metav1.GetControllerOf(r); c != nil {
		return c.UID == uid
	}
	ours := slices.ContainsFunc(r.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == marks.Manager })
	hash := r.GetLabels()[hashLabel(key.GroupKind())]
	return ours && hash != "" && r.GetName() == key.Name+"-"+hash
}

// hashLabel is where revisions of a kind have their hash.
func hashLabel(gk schema.GroupKind) string {
	if gk == deploymentKind {
		return revision.HashLabel
	}
	return historyLabel(gk.Kind)
}
