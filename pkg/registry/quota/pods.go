package quota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

var pods = schema.GroupResource{Resource: "pods"}

// listLimit bounds one list of a namespace's Pods.
const listLimit = 30 * time.Second

// podLister lists the Pods of a namespace in all clusters.
type podLister struct{ client kubernetes.Interface }

// List would hold every Pod of the fleet.
func (podLister) List(labels.Selector) ([]runtime.Object, error) {
	return nil, fmt.Errorf("Pods are counted by namespace") //nolint:staticcheck // the name of a kind
}

// Get is asked by nobody.
func (podLister) Get(name string) (runtime.Object, error) {
	return nil, fmt.Errorf("a Pod %q without a namespace", name)
}

// ByNamespace implements cache.GenericLister.
func (l podLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return namespacePods{client: l.client, namespace: namespace}
}

type namespacePods struct {
	client    kubernetes.Interface
	namespace string
}

// List asks the member cache.
func (l namespacePods) List(selector labels.Selector) ([]runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	list, err := l.client.CoreV1().Pods(l.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of %s: %w", l.namespace, err)
	}
	out := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Get asks the member cache.
func (l namespacePods) Get(name string) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	return l.client.CoreV1().Pods(l.namespace).Get(ctx, name, metav1.GetOptions{})
}

// podWatches follows the Pods of namespaces whose quotas constrain them.
type podWatches struct {
	client  kubernetes.Interface
	changed func(namespace string)

	mu      sync.Mutex
	ctx     context.Context               // nil until run
	quotas  map[cache.ObjectName]bool     // that constrain Pods
	watches map[string]context.CancelFunc // by namespace
	group   sync.WaitGroup
}

func newPodWatches(client kubernetes.Interface, changed func(string)) *podWatches {
	return &podWatches{
		client: client, changed: changed,
		quotas: map[cache.ObjectName]bool{}, watches: map[string]context.CancelFunc{},
	}
}

func (w *podWatches) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	for name := range w.quotas {
		w.ensureLocked(name.Namespace) //nolint:contextcheck // takes the context that was just stored
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.group.Wait()
}

// want says whether a quota needs the Pods of its namespace.
func (w *podWatches) want(quota cache.ObjectName, needed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if needed {
		w.quotas[quota] = true
	} else {
		delete(w.quotas, quota)
	}
	w.ensureLocked(quota.Namespace)
}

func (w *podWatches) ensureLocked(namespace string) {
	needed := false
	for name := range w.quotas {
		needed = needed || name.Namespace == namespace
	}
	stop := w.watches[namespace]
	switch {
	case needed && stop == nil && w.ctx != nil && w.ctx.Err() == nil:
		ctx, cancel := context.WithCancel(w.ctx)
		w.watches[namespace] = cancel
		w.group.Go(func() { w.watch(ctx, namespace) })
	case !needed && stop != nil:
		stop()
		delete(w.watches, namespace)
	}
}

// watch keeps no objects: any event means that the namespace is counted anew.
func (w *podWatches) watch(ctx context.Context, namespace string) {
	const minPause, maxPause = time.Second, 30 * time.Second
	pause := minPause
	for ctx.Err() == nil {
		begun := time.Now()
		if err := w.watchOnce(ctx, namespace); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("The Pods of a namespace with a quota cannot be watched", "namespace", namespace, "err", err)
		}
		if time.Since(begun) > maxPause {
			pause = minPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

func (w *podWatches) watchOnce(ctx context.Context, namespace string) error {
	// A list of one item says from where on events are new.
	list, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	w.changed(namespace)
	events, err := w.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if _, ok := event.Object.(*corev1.Pod); ok {
			w.changed(namespace)
		}
	}
	return nil
}
