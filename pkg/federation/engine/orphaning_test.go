package engine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Only what the engine has made for this template's revisions goes with it.
func TestWasRevision(t *testing.T) {
	deployment := marks.Key{GroupVersionKind: deploymentGVK, Namespace: "d", Name: "web"}
	object := func(name string, labels map[string]string, manager string, owner types.UID) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetName(name)
		u.SetLabels(labels)
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager}})
		if owner != "" {
			u.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: owner, Controller: new(true)}})
		}
		return u
	}
	hash := map[string]string{"pod-template-hash": "77"}
	for name, c := range map[string]struct {
		r    *unstructured.Unstructured
		want bool
	}{
		"still owned":            {object("web-77", hash, marks.Manager, "u"), true},
		"the owner is taken off": {object("web-77", hash, marks.Manager, ""), true},
		"of a later template":    {object("web-77", hash, marks.Manager, "v"), false},
		"a user's":               {object("web-77", hash, "kubectl", ""), false},
		"of another Deployment":  {object("web-api-77", hash, marks.Manager, ""), false},
		"without a hash":         {object("web-", nil, marks.Manager, ""), false},
	} {
		if got := wasRevision(deployment, "u", c.r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	sts := marks.Key{GroupVersionKind: deploymentGVK.GroupVersion().WithKind("StatefulSet"), Namespace: "d", Name: "db"}
	if !wasRevision(sts, "u", object("db-5f", map[string]string{"controller.kubernetes.io/hash": "5f"}, marks.Manager, "")) {
		t.Error("the revision of a StatefulSet is not known")
	}
	ds := marks.Key{GroupVersionKind: deploymentGVK.GroupVersion().WithKind("DaemonSet"), Namespace: "d", Name: "db"}
	if !wasRevision(ds, "u", object("db-5f", map[string]string{"controller-revision-hash": "5f"}, marks.Manager, "")) {
		t.Error("the revision of a DaemonSet is not known")
	}
}
