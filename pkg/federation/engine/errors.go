package engine

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
)

var (
	errMembersNotSynced = errors.New("the list of clusters is not complete yet")
	errStale            = errors.New("the cache is behind")
	errNotServed        = errors.New("copies of the kind cannot be watched in the cluster")
	errNamespaceMissing = errors.New("the namespace is not there yet")
	errGoing            = errors.New("the copy is going")
	errOverride         = errors.New("overrides cannot be applied")
	errUnmanaged        = errors.New("an object of this name that is not managed exists in the cluster and is left alone (conflictResolution Abort)")
	errHeld             = errors.New("the copy is on hold (" + holdKey + ")")
	errTemplateHeld     = errors.New("the template is on hold (" + holdKey + ")")
	errHoldsHeld        = errors.New("the namespace holds a copy that is on hold (" + holdKey + ")")
	errBeingDeleted     = errors.New("the copy is being deleted in the cluster")
	errContested        = errors.New("another controller keeps changing fields of the copy; corrections are slowed down")
)

const holdKey = "isthmus.dev/hold"

func isNotServed(err error) bool { return errors.Is(err, errNotServed) }

type (
	watchInterface = watch.Interface
	taint          = corev1.Taint
)

// forbiddenKind: no object of the kind is ever propagated.
func forbiddenKind(gk schema.GroupKind) bool {
	_, no := intent.Forbidden(gk, &metav1.ObjectMeta{Name: "x", Namespace: "x"}, "")
	return no
}
