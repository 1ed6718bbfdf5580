// Package reconcile serves the queues of the controllers:
//
//	key -> reconcile -> done | failed is told, and the key comes again later
package reconcile

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
)

// Serve works until the queue is shut down. What fails is told to failed and
// tried again with the queue's backoff; failures after the end of ctx are none.
func Serve[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error, failed func(K, error)) {
	for {
		key, quit := queue.Get()
		if quit {
			return
		}
		err := reconcile(ctx, key)
		switch {
		case err == nil:
			queue.Forget(key)
		case ctx.Err() == nil:
			failed(key, err)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

// Run serves with one worker until ctx ends, and shuts the queue down.
func Run[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error, failed func(K, error)) {
	var wg sync.WaitGroup
	wg.Go(func() { Serve(ctx, queue, reconcile, failed) })
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
}

// As decodes an object of a dynamic informer.
func As[T any](obj any) (*T, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", obj)
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return out, nil
}
