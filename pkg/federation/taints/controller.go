package taints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/reconcile"
)

// Manager is the field manager of the taints.
const Manager = "isthmus-taints"

var (
	clusters = schema.GroupVersionResource{Group: clusterv1alpha1.GroupName, Version: "v1alpha1", Resource: "clusters"}
	policies = policyv1alpha1.SchemeGroupVersion.WithResource("clustertaintpolicies")
)

type controller struct {
	client   dynamic.Interface
	clusters cache.SharedIndexInformer
	policies cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
}

// Run keeps the taints until ctx ends. Only one replica may run it.
func Run(ctx context.Context, controlPlane *rest.Config) error {
	client, err := dynamic.NewForConfig(rest.AddUserAgent(rest.CopyConfig(controlPlane), Manager))
	if err != nil {
		return fmt.Errorf("client of the taint controller: %w", err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	c := &controller{
		client: client, clusters: factory.ForResource(clusters).Informer(), policies: factory.ForResource(policies).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute)),
	}
	all := func(any) { c.enqueueAll() }
	_, errClusters := c.clusters.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: func(_, obj any) { c.enqueue(obj) },
	})
	_, errPolicies := c.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: all, UpdateFunc: func(_, obj any) { all(obj) },
	})
	if err := errors.Join(errClusters, errPolicies); err != nil {
		return fmt.Errorf("watches of the taint controller: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.clusters.HasSynced, c.policies.HasSynced) {
		return nil
	}
	reconcile.Run(ctx, c.queue, c.reconcile, func(name string, err error) {
		klog.FromContext(ctx).Error(err, "The taints of a cluster are not as they should be", "cluster", name)
	})
	return nil
}

func (c *controller) enqueue(obj any) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		c.queue.Add(u.GetName())
	}
}

func (c *controller) enqueueAll() {
	for _, name := range c.clusters.GetStore().ListKeys() {
		c.queue.Add(name)
	}
}

func (c *controller) reconcile(ctx context.Context, name string) error {
	obj, found, err := c.clusters.GetStore().GetByKey(name)
	if err != nil || !found {
		return err
	}
	cluster, err := reconcile.As[clusterv1alpha1.Cluster](obj)
	if err != nil || cluster.DeletionTimestamp != nil {
		return err
	}
	var rules []policyv1alpha1.ClusterTaintPolicy
	for _, obj := range c.policies.GetStore().List() {
		p, err := reconcile.As[policyv1alpha1.ClusterTaintPolicy](obj)
		if err != nil {
			return err
		}
		if p.DeletionTimestamp == nil {
			rules = append(rules, *p)
		}
	}
	taints, changed, problem := Decide(cluster, rules, time.Now())
	if !changed {
		return problem
	}
	// An empty list, not null: the field is ours to say.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": cluster.UID, "resourceVersion": cluster.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("taints of cluster %s: %w", name, err)
	}
	_, err = c.client.Resource(clusters).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		c.queue.AddAfter(name, 200*time.Millisecond) // the watch brings what is new
		return nil
	case err != nil:
		return fmt.Errorf("taints of cluster %s: %w", name, err)
	}
	return problem
}
