// Package settle waits, within the request that made it, for a write of the
// control plane to come to the members:
//
//	proxy.Router -> Gone    -> reads of the control plane
//	             -> InPlace -> the engine, where it leads
package settle

import (
	"context"
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
	// single is up to how many objects are read one by one.
	single = 5
)

// Gone implements proxy.Settler.
func (s *Settler) Gone(ctx context.Context, gvr schema.GroupVersionResource, refs []proxy.Ref) {
	poll(ctx, func() bool {
		if len(refs) > single {
			refs = s.remaining(ctx, gvr, refs)
			return len(refs) == 0
		}
		for len(refs) > 0 {
			got, err := s.client.Resource(gvr).Namespace(refs[0].Namespace).Get(ctx, refs[0].Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) && (err != nil || got.UID == refs[0].UID) {
				return false
			}
			refs = refs[1:]
		}
		return true
	})
}

// remaining lists once for all. Objects of one answer share a namespace, or
// come from all of them.
func (s *Settler) remaining(ctx context.Context, gvr schema.GroupVersionResource, refs []proxy.Ref) []proxy.Ref {
	namespace := refs[0].Namespace
	for _, r := range refs {
		if r.Namespace != namespace {
			namespace = metav1.NamespaceAll
		}
	}
	list, err := s.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return refs
	}
	exists := make(map[types.UID]bool, len(list.Items))
	for i := range list.Items {
		exists[list.Items[i].UID] = true
	}
	var left []proxy.Ref
	for _, r := range refs {
		if exists[r.UID] {
			left = append(left, r)
		}
	}
	return left
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
