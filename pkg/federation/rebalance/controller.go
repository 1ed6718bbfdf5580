package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	appsv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/apps/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/reconcile"
)

// Manager is the field manager of what is written.
const Manager = "isthmus-rebalance"

var rebalancers = appsv1alpha1.SchemeGroupVersion.WithResource("workloadrebalancers")

type controller struct {
	client   dynamic.Interface
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
}

// Run serves WorkloadRebalancers until ctx ends. Only one replica may run it.
func Run(ctx context.Context, controlPlane *rest.Config) error {
	client, err := dynamic.NewForConfig(rest.AddUserAgent(rest.CopyConfig(controlPlane), Manager))
	if err != nil {
		return fmt.Errorf("client of the rebalancer: %w", err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	c := &controller{
		client: client, informer: factory.ForResource(rebalancers).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute)),
	}
	enqueue := func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			c.queue.Add(u.GetName())
		}
	}
	if _, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}); err != nil {
		return fmt.Errorf("watch of the rebalancer: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		return nil
	}
	reconcile.Run(ctx, c.queue, c.reconcile, func(name string, err error) {
		klog.FromContext(ctx).Error(err, "A WorkloadRebalancer is not done yet", "name", name)
	})
	return nil
}

func (c *controller) reconcile(ctx context.Context, name string) error {
	obj, found, err := c.informer.GetStore().GetByKey(name)
	if err != nil || !found {
		return err
	}
	r, err := reconcile.As[appsv1alpha1.WorkloadRebalancer](obj)
	if err != nil || r.DeletionTimestamp != nil {
		return err
	}
	if end, ends := End(r); ends {
		return c.end(ctx, r, time.Until(end))
	}
	failed := map[appsv1alpha1.ObjectReference]bool{}
	for _, w := range Pending(r) {
		there, err := c.ask(ctx, r, w)
		if err != nil {
			return fmt.Errorf("%s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
		}
		failed[w] = !there
	}
	return c.report(ctx, r, Result(r, failed, time.Now()))
}

// end deletes the rebalancer when its time has come.
func (c *controller) end(ctx context.Context, r *appsv1alpha1.WorkloadRebalancer, left time.Duration) error {
	if left > 0 {
		c.queue.AddAfter(r.Name, left)
		return nil
	}
	err := c.client.Resource(rebalancers).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete WorkloadRebalancer %s: %w", r.Name, err)
	}
	return nil
}

func (c *controller) report(ctx context.Context, r *appsv1alpha1.WorkloadRebalancer, status appsv1alpha1.WorkloadRebalancerStatus) error {
	if equality.Semantic.DeepEqual(r.Status, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("status of WorkloadRebalancer %s: %w", r.Name, err)
	}
	_, err = c.client.Resource(rebalancers).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of WorkloadRebalancer %s: %w", r.Name, err)
	}
	return nil
}

// ask writes the trigger to the binding of a workload; false when it has none.
func (c *controller) ask(ctx context.Context, r *appsv1alpha1.WorkloadRebalancer, w appsv1alpha1.ObjectReference) (there bool, err error) {
	resource := "resourcebindings"
	if w.Namespace == "" {
		resource = "clusterresourcebindings"
	}
	bindings := c.client.Resource(workv1alpha2.SchemeGroupVersion.WithResource(resource)).Namespace(w.Namespace)
	b, err := find(ctx, bindings, w)
	if err != nil || b == nil {
		return false, err
	}
	at := Trigger(r, &b.Spec, &b.Status, time.Now())
	if at.IsZero() {
		return true, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": b.UID}, "spec": map[string]any{"rescheduleTriggeredAt": at},
	})
	if err != nil {
		return false, err
	}
	_, err = bindings.Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, err
}

// find looks for the binding of a workload, whatever its name.
func find(ctx context.Context, bindings dynamic.ResourceInterface, w appsv1alpha1.ObjectReference) (*workv1alpha2.ResourceBinding, error) {
	wanted, err := schema.ParseGroupVersion(w.APIVersion)
	if err != nil {
		return nil, nil //nolint:nilerr // what is not a version has no binding
	}
	// Nearly always it has the name that bindings have.
	name := strings.ToLower(w.Name + "-" + w.Kind)
	if len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil // no object has such a name
	}
	obj, err := bindings.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if b, err := reconcile.As[workv1alpha2.ResourceBinding](obj); err != nil || isOf(b, wanted, w) {
			return b, err
		}
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	opts := metav1.ListOptions{Limit: 500}
	for {
		list, err := bindings.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			b, err := reconcile.As[workv1alpha2.ResourceBinding](&list.Items[i])
			if err != nil {
				return nil, err
			}
			if isOf(b, wanted, w) {
				return b, nil
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil, nil
		}
	}
}

// isOf says whether a binding is that of a workload.
func isOf(b *workv1alpha2.ResourceBinding, wanted schema.GroupVersion, w appsv1alpha1.ObjectReference) bool {
	gv, err := schema.ParseGroupVersion(b.Spec.Resource.APIVersion)
	return err == nil && gv.Group == wanted.Group && b.Spec.Resource.Kind == w.Kind && b.Spec.Resource.Name == w.Name
}
