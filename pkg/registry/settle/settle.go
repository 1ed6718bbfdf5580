// Package settle waits, within the request that made it, for a write of the
// control plane to come to the members:
//
//	proxy.Router -> Gone    -> reads of the control plane
//	             -> InPlace -> the engine, where it leads
package settle

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// Engine knows what the members have.
type Engine interface {
	InPlace(gk schema.GroupKind, namespace, name string, uid types.UID) bool
}

// Settler implements proxy.Settler.
type Settler struct {
	client metadata.Interface
	engine atomic.Pointer[Engine]
}

var _ proxy.Settler = &Settler{}

// New makes a settler; client must see the control plane alone.
func New(client metadata.Interface) *Settler {
	return &Settler{client: client}
}

// Lead tells of the engine, nil when it does not lead in this process: then
// InPlace does not wait.
func (s *Settler) Lead(e Engine) {
	if e == nil {
		s.engine.Store(nil)
		return
	}
	s.engine.Store(&e)
}

const (
	firstPause = 20 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// Gone implements proxy.Settler. The options of a deletion come in its body too:
// what is not being deleted after all was a dry run.
func (s *Settler) Gone(ctx context.Context, gvr schema.GroupVersionResource, ref proxy.Ref) {
	poll(ctx, func() bool {
		got, err := s.client.Resource(gvr).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && (got.UID != ref.UID || got.DeletionTimestamp == nil)
	})
}

// AllGone implements proxy.Settler.
func (s *Settler) AllGone(ctx context.Context, gvr schema.GroupVersionResource, namespace, labelSelector, fieldSelector string) {
	options := metav1.ListOptions{LabelSelector: labelSelector, FieldSelector: fieldSelector}
	poll(ctx, func() bool {
		list, err := s.client.Resource(gvr).Namespace(namespace).List(ctx, options)
		if err != nil {
			return apierrors.IsBadRequest(err) // a selector that the control plane does not know
		}
		return !slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return proxy.HeldByMembersOnly(&o) })
	})
}

// InPlace implements proxy.Settler.
func (s *Settler) InPlace(ctx context.Context, gk schema.GroupKind, ref proxy.Ref) {
	poll(ctx, func() bool {
		e := s.engine.Load()
		return e == nil || (*e).InPlace(gk, ref.Namespace, ref.Name, ref.UID)
	})
}

func poll(ctx context.Context, done func() bool) {
	for pause := firstPause; !done(); pause = min(2*pause, lastPause) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
