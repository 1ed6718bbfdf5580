package federatedquota

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/reconcile"
)

// Manager is the field manager of what is written.
const Manager = "isthmus-federated-quota"

const (
	// look is how often the members' parts are looked at.
	look = 10 * time.Second
	// settle gathers the changes of a moment.
	settle = time.Second
)

var (
	federated = policyv1alpha1.SchemeGroupVersion.WithResource("federatedresourcequotas")
	quotas    = corev1.SchemeGroupVersion.WithResource("resourcequotas")
)

// Parts says what the members show of a ResourceQuota, by cluster.
type Parts func(namespace, name string) map[string]corev1.ResourceQuotaStatus

type controller struct {
	client    dynamic.Interface
	parts     Parts
	recorder  record.EventRecorder
	federated cache.SharedIndexInformer
	quotas    cache.SharedIndexInformer
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// Run keeps them until ctx ends. Only one replica may run it.
func Run(ctx context.Context, controlPlane *rest.Config, parts Parts) error {
	client, err := dynamic.NewForConfig(rest.AddUserAgent(rest.CopyConfig(controlPlane), Manager))
	if err != nil {
		return fmt.Errorf("client of federated quotas: %w", err)
	}
	events, err := kubernetes.NewForConfig(controlPlane)
	if err != nil {
		return fmt.Errorf("client of federated quotas: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := policyv1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("events of federated quotas: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: events.CoreV1().Events("")})
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	c := &controller{
		client: client, parts: parts, recorder: broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "isthmus"}),
		federated: factory.ForResource(federated).Informer(), quotas: factory.ForResource(quotas).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](100*time.Millisecond, time.Minute)),
	}
	changed := func(after time.Duration) cache.ResourceEventHandlerFuncs {
		enqueue := func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			if u, ok := obj.(*unstructured.Unstructured); ok {
				c.queue.AddAfter(cache.NewObjectName(u.GetNamespace(), u.GetName()), after)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }, DeleteFunc: enqueue}
	}
	_, errFederated := c.federated.AddEventHandler(changed(0))
	_, errQuotas := c.quotas.AddEventHandler(changed(settle))
	if err := errors.Join(errFederated, errQuotas); err != nil {
		return fmt.Errorf("watches of federated quotas: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), c.federated.HasSynced, c.quotas.HasSynced) {
		return nil
	}
	reconcile.Run(ctx, c.queue, c.reconcile, func(name cache.ObjectName, err error) {
		klog.FromContext(ctx).Error(err, "A federated quota is not as it should be", "quota", name.String())
	})
	return nil
}

func (c *controller) reconcile(ctx context.Context, name cache.ObjectName) error {
	obj, found, err := c.federated.GetStore().GetByKey(name.String())
	if err != nil || !found {
		return err // its ResourceQuota is collected with it
	}
	f, err := reconcile.As[policyv1alpha1.FederatedResourceQuota](obj)
	if err != nil || f.DeletionTimestamp != nil {
		return err
	}
	c.queue.AddAfter(name, look)
	there, err := c.quota(name)
	if err != nil {
		return err
	}
	if there != nil && !metav1.IsControlledBy(there, f) {
		c.recorder.Eventf(f, corev1.EventTypeWarning, "ResourceQuotaExists", "ResourceQuota %s %v", f.Name, errOthers)
		return fmt.Errorf("ResourceQuota %s %w", name, errOthers)
	}
	want, err := Desired(f, there)
	if err != nil {
		return err
	}
	if there == nil || !equality.Semantic.DeepEqual(there, want) {
		return c.write(ctx, there, want) // the change comes back as an event
	}
	return c.writeStatus(ctx, f, Status(f, there, c.parts(name.Namespace, name.Name)))
}

// errOthers: what somebody has made is left alone.
var errOthers = errors.New("is there already, and was not made for a FederatedResourceQuota")

func (c *controller) quota(name cache.ObjectName) (*corev1.ResourceQuota, error) {
	obj, found, err := c.quotas.GetStore().GetByKey(name.String())
	if err != nil || !found {
		return nil, err
	}
	return reconcile.As[corev1.ResourceQuota](obj)
}

func (c *controller) write(ctx context.Context, there, want *corev1.ResourceQuota) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("quota %s/%s: %w", want.Namespace, want.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	at := c.client.Resource(quotas).Namespace(want.Namespace)
	if there == nil {
		unstructured.RemoveNestedField(u.Object, "status")
		_, err = at.Create(ctx, u, metav1.CreateOptions{FieldManager: Manager})
	} else {
		_, err = at.Update(ctx, u, metav1.UpdateOptions{FieldManager: Manager})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // the watch is behind, and brings what is new
	}
	if err != nil {
		return fmt.Errorf("quota %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

func (c *controller) writeStatus(ctx context.Context, f *policyv1alpha1.FederatedResourceQuota, status policyv1alpha1.FederatedResourceQuotaStatus) error {
	if equality.Semantic.DeepEqual(f.Status, status) {
		return nil
	}
	f.Status = status
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f)
	if err != nil {
		return fmt.Errorf("status of %s: %w", f.Name, err)
	}
	_, err = c.client.Resource(federated).Namespace(f.Namespace).UpdateStatus(ctx, &unstructured.Unstructured{Object: object}, metav1.UpdateOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("status of %s: %w", f.Name, err)
	}
	return nil
}
