package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/reconcile"
)

const workers = 4

// Timing is how often members are asked, and how long they may take.
type Timing struct {
	Probe, ProbeTimeout time.Duration
	Discovery, Summary  time.Duration
}

// Options configure a Controller.
type Options struct {
	// ControlPlane reaches the control plane.
	ControlPlane *rest.Config
	// Leads says whether this replica writes Clusters and rotates tokens.
	// Nil means always.
	Leads func() bool
	// Summaries adds up nodes and pods; nil asks the members.
	Summaries SummarySource
	// Timing and Thresholds have usable defaults.
	Timing     Timing
	Thresholds Thresholds
}

func (o *Options) complete() error {
	if o.ControlPlane == nil {
		return errors.New("membership: no way to the control plane is given")
	}
	if o.Leads == nil {
		o.Leads = func() bool { return true }
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Timing.Probe, 10*time.Second)
	def(&o.Timing.ProbeTimeout, 5*time.Second)
	def(&o.Timing.Discovery, 30*time.Second)
	def(&o.Timing.Summary, 60*time.Second)
	def(&o.Thresholds.Failure, 30*time.Second)
	def(&o.Thresholds.Success, 30*time.Second)
	return nil
}

// Controller keeps the Directory and the status of Clusters.
type Controller struct {
	*roster
	opts     Options
	clusters client.Clusters
	kube     kubernetes.Interface
	queue    workqueue.TypedRateLimitingInterface[string]

	clusterInformer cache.SharedIndexInformer
	secrets         informers.SharedInformerFactory
	secretInformer  cache.SharedIndexInformer
	listed          chan struct{}
	metadata        metadata.Interface

	mu        sync.Mutex
	links     map[string]*link
	syncs     map[string]syncState
	renewals  map[string]*renewal // by Secret name
	selfUID   types.UID           // of the control plane itself
	lastOrder int64
	groups    []string // of the control plane's own custom resources

	orderMu sync.Mutex // one join order is given out at a time
}

// New makes a Controller; nothing runs until Run.
func New(opts Options) (*Controller, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(opts.ControlPlane)
	config.QPS = -1
	clusters, err := client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the control plane: %w", err)
	}
	md, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the control plane: %w", err)
	}
	return newController(opts, clusters, kube, md)
}

func newController(opts Options, clusters client.Clusters, kube kubernetes.Interface, md metadata.Interface) (*Controller, error) {
	c := &Controller{
		roster: newRoster(), opts: opts, clusters: clusters, kube: kube, metadata: md,
		links: map[string]*link{}, syncs: map[string]syncState{}, renewals: map[string]*renewal{},
		listed: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "membership"}),
	}
	c.clusterInformer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  clusterList(clusters),
		WatchFuncWithContext: clusters.Watch,
	}, clusters), &v1alpha1.Cluster{}, 0, cache.Indexers{})
	c.secrets = informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(v1alpha1.CredentialsNamespace))
	c.secretInformer = c.secrets.Core().V1().Secrets().Informer()
	if _, err := c.clusterInformer.AddEventHandler(c.onCluster()); err != nil {
		return nil, fmt.Errorf("watch of Clusters: %w", err)
	}
	if _, err := c.secretInformer.AddEventHandler(c.onSecret()); err != nil {
		return nil, fmt.Errorf("watch of Secrets: %w", err)
	}
	return c, nil
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("membership"))
	defer c.queue.ShutDown()
	var wg sync.WaitGroup
	wg.Go(func() { c.clusterInformer.RunWithContext(ctx) })
	c.secrets.StartWithContext(ctx)
	defer func() {
		c.queue.ShutDown()
		wg.Wait()
		c.secrets.Shutdown()
		c.closeLinks()
	}()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.clusterInformer.HasSynced, c.secretInformer.HasSynced) {
		return ctx.Err()
	}
	wg.Go(func() { c.learnSelf(ctx) })
	if err := c.watchGroups(ctx); err != nil {
		return err
	}
	// The first pass over all Clusters is what WaitForSync waits for.
	for _, cluster := range c.listClusters() {
		if err := c.reconcile(ctx, cluster.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cluster not reconciled, will retry", "cluster", cluster.Name)
			c.queue.AddRateLimited(cluster.Name)
		}
	}
	close(c.listed)
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

// learnSelf finds out the identity of the control plane, which must not join
// itself. Its kube-system namespace may take a moment to appear.
func (c *Controller) learnSelf(ctx context.Context) {
	for {
		ns, err := c.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			c.mu.Lock()
			c.selfUID = ns.UID
			c.mu.Unlock()
			return
		}
		klog.FromContext(ctx).V(2).Info("Identity of the control plane not known yet, will retry", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// WaitForSync waits until every Cluster that exists is in the Directory.
func (c *Controller) WaitForSync(ctx context.Context) error {
	select {
	case <-c.listed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the list of members: %w", ctx.Err())
	}
}

// HasSynced reports whether every Cluster that exists is in the Directory.
func (c *Controller) HasSynced() bool {
	select {
	case <-c.listed:
		return true
	default:
		return false
	}
}

// SetCacheSynced records what the cache says of a member: the condition
// CacheSynced and, once it was true, the memory of that. Unchanged calls are
// free.
func (c *Controller) SetCacheSynced(name string, synced bool, message string) {
	s := syncState{synced: synced, message: message}
	c.mu.Lock()
	old, known := c.syncs[name]
	c.syncs[name] = s
	c.mu.Unlock()
	if !known || old != s {
		c.queue.Add(name)
	}
}

func (c *Controller) work(ctx context.Context) {
	reconcile.Serve(ctx, c.queue, c.reconcile, func(name string, err error) {
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "Cluster not reconciled, will retry", "cluster", name)
		}
	})
}

func (c *Controller) onCluster() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.queue.Add(obj.(*v1alpha1.Cluster).Name) },
		UpdateFunc: func(_, obj any) {
			c.queue.Add(obj.(*v1alpha1.Cluster).Name)
		},
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				c.queue.Add(key)
			}
		},
	}
}

func (c *Controller) onSecret() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			return
		}
		_, name, err := cache.SplitMetaNamespaceKey(key)
		if err != nil {
			return
		}
		for _, cluster := range c.listClusters() {
			if refersTo(cluster, name) {
				c.queue.Add(cluster.Name)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

// refersTo reports whether a Cluster takes credentials from a Secret.
func refersTo(cluster *v1alpha1.Cluster, secret string) bool {
	for _, ref := range []*v1alpha1.LocalSecretReference{cluster.Spec.SecretRef, cluster.Spec.ImpersonatorSecretRef} {
		if ref != nil && ref.Name == secret {
			return true
		}
	}
	return strings.TrimSuffix(secret, v1alpha1.ApplySecretSuffix) == cluster.Name
}

func (c *Controller) listClusters() []*v1alpha1.Cluster {
	objs := c.clusterInformer.GetStore().List()
	out := make([]*v1alpha1.Cluster, 0, len(objs))
	for _, obj := range objs {
		if cluster, ok := obj.(*v1alpha1.Cluster); ok {
			out = append(out, cluster)
		}
	}
	return out
}

func (c *Controller) cluster(name string) (*v1alpha1.Cluster, bool) {
	obj, ok, err := c.clusterInformer.GetStore().GetByKey(name)
	if err != nil || !ok {
		return nil, false
	}
	cluster, ok := obj.(*v1alpha1.Cluster)
	return cluster, ok
}

func (c *Controller) secret(name string) (*corev1.Secret, bool) {
	obj, ok, err := c.secretInformer.GetStore().GetByKey(v1alpha1.CredentialsNamespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	secret, ok := obj.(*corev1.Secret)
	return secret, ok
}

// ensureLink returns the link of a member, new on first use with the health
// that the Cluster remembers.
func (c *Controller) ensureLink(cluster *v1alpha1.Cluster) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cluster.Name
	if l, ok := c.links[name]; ok {
		return l
	}
	l := newLink(name, rememberedHealth(cluster))
	l.timing, l.thresholds = c.opts.Timing, c.opts.Thresholds
	l.sums, l.leads = c.opts.Summaries, c.opts.Leads
	l.foreign, l.groups = c.foreign, c.federatedGroups
	l.changed = func() { c.queue.Add(name) }
	l.known = cluster.Status.APIEnablements
	c.links[name] = l
	return l
}

// rememberedHealth is the last known state of a member before we started.
func rememberedHealth(cluster *v1alpha1.Cluster) Health {
	cond := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ClusterConditionReady)
	if cond == nil {
		return Health{}
	}
	return Health{
		Known: true, Ready: cond.Status == metav1.ConditionTrue,
		Reason: cond.Reason, Message: cond.Message, Since: cond.LastTransitionTime.Time,
	}
}

// dropLink ends the link of a member that is gone.
func (c *Controller) dropLink(name string) {
	c.mu.Lock()
	l := c.links[name]
	delete(c.links, name)
	delete(c.syncs, name)
	c.mu.Unlock()
	if l != nil {
		l.close()
	}
}

func (c *Controller) closeLinks() {
	c.mu.Lock()
	links := c.links
	c.links = map[string]*link{}
	c.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}
