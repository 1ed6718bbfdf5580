package engine

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// orphaning remembers the templates whose deletion is to leave the copies
// alone. The request is a finalizer that the garbage collector takes off when
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
