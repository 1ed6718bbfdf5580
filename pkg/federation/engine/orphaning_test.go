package engine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// The garbage collector may be done before the members are looked at: what was
// asked for is not forgotten.
func TestOrphaningIsRemembered(t *testing.T) {
	key := marks.Key{Namespace: "d", Name: "web"}
	seen := func(uid types.UID, deleting bool, finalizers ...string) *template {
		o := &template{ObjectMeta: metav1.ObjectMeta{UID: uid, Finalizers: finalizers}}
		if deleting {
			o.DeletionTimestamp = new(metav1.Now())
		}
		return o
	}
	var o orphaning
	o.see(key, seen("1", false, metav1.FinalizerOrphanDependents))
	if o.asked(key, "1", nil) {
		t.Error("a finalizer before any deletion counts")
	}
	o.see(key, seen("1", true, marks.Finalizer, metav1.FinalizerOrphanDependents))
	o.see(key, seen("1", true, marks.Finalizer))
	if !o.asked(key, "1", []string{marks.Finalizer}) {
		t.Error("forgotten as soon as the garbage collector is done")
	}
	if o.asked(key, "2", nil) || o.asked(key, "", nil) {
		t.Error("counts for another template of that name")
	}
	if !o.asked(key, "2", []string{metav1.FinalizerOrphanDependents}) {
		t.Error("a live finalizer does not count")
	}
	o.forget(key)
	if o.asked(key, "1", nil) {
		t.Error("remembered after the template has gone")
	}
}
