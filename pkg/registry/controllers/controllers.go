// Package controllers runs the control-plane controllers that federated kinds
// need, inside the process and against the control plane alone: namespaces,
// garbage collection, service accounts, the root CA, TTL-after-finished,
// cluster role aggregation, quotas, the types in admission policies, and what
// is issued for the endpoint: client certificates and token Secrets.
//
// All of them use the loopback client, which bypasses the router: a member's
// objects are never seen, and so never deleted, by these controllers. Quotas
// also read the Pods of all clusters.
package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	namespacecontroller "k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/registry/quota"
)

const (
	resync         = 12 * time.Hour
	gcSyncPeriod   = 10 * time.Second
	workers        = 5
	gcWorkers      = 10
	mapperRefresh  = 30 * time.Second
	controllerName = "isthmus-controllers"
)

// gcIgnored are kinds whose objects churn and never own or are owned by what
// the control plane collects.
var gcIgnored = map[schema.GroupResource]struct{}{
	{Group: "", Resource: "events"}:              {},
	{Group: "events.k8s.io", Resource: "events"}: {},
	{Group: "", Resource: "pods"}:                {},
	{Group: "", Resource: "nodes"}:               {},
	{Group: "metrics.k8s.io", Resource: "pods"}:  {},
	{Group: "metrics.k8s.io", Resource: "nodes"}: {},
}

type runner func(ctx context.Context)

// Config says what the controllers work with.
type Config struct {
	// Loopback must bypass the router.
	Loopback *rest.Config
	// RootCA is published to every namespace as kube-root-ca.crt.
	RootCA []byte
	// ClientCA and ClientCAKey are files of the authority of API clients;
	// without the key certificate requests are not signed.
	ClientCA, ClientCAKey string
	// ServiceAccountKey is the file of the key that signs tokens.
	ServiceAccountKey string
}

// Run starts all controllers and blocks until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	config := rest.CopyConfig(cfg.Loopback)
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, controllerName))
	if err != nil {
		return fmt.Errorf("client of the control-plane controllers: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	runners, err := typed(ctx, client, shared, config, cfg.RootCA)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("metadata client of the control-plane controllers: %w", err)
	}
	objects := informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(metadataClient, resync))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	collector, err := collector(ctx, client, metadataClient, objects, mapper)
	if err != nil {
		return err
	}
	policies, err := policyStatus(client, shared, mapper)
	if err != nil {
		return err
	}
	issuers, err := issuing(ctx, client, shared, cfg)
	if err != nil {
		return err
	}
	fleet, err := kubernetes.NewForConfig(proxy.FleetConfig(config))
	if err != nil {
		return fmt.Errorf("client of the endpoint: %w", err)
	}
	quotas, err := quota.New(ctx, quota.Config{ControlPlane: client, Fleet: fleet, Shared: shared, Objects: objects})
	if err != nil {
		return fmt.Errorf("quota controller: %w", err)
	}
	runners = append(append(runners, issuers...), collector, policies, quotas.Run)
	shared.Start(ctx.Done())
	var wg sync.WaitGroup
	for _, run := range runners {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return nil
}

func typed(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory, config *rest.Config, rootCA []byte) ([]runner, error) {
	core := shared.Core().V1()
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("metadata client of the control-plane controllers: %w", err)
	}
	namespaces := namespacecontroller.NewNamespaceController(ctx, client, metadataClient,
		client.Discovery().ServerPreferredNamespacedResources, core.Namespaces(), 5*time.Minute, v1.FinalizerKubernetes)
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("service account controller: %w", err)
	}
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, rootCA)
	if err != nil {
		return nil, fmt.Errorf("root CA publisher: %w", err)
	}
	ttl := ttlafterfinished.New(ctx, shared.Batch().V1().Jobs(), client)
	roles := clusterroleaggregation.NewClusterRoleAggregation(shared.Rbac().V1().ClusterRoles(), client.RbacV1())
	return []runner{
		func(ctx context.Context) { namespaces.Run(ctx, workers) },
		func(ctx context.Context) { accounts.Run(ctx, 1) },
		func(ctx context.Context) { publisher.Run(ctx, 1) },
		func(ctx context.Context) { ttl.Run(ctx, workers) },
		func(ctx context.Context) { roles.Run(ctx, workers) },
	}, nil
}

func collector(ctx context.Context, client kubernetes.Interface, metadataClient metadata.Interface, objects informerfactory.InformerFactory, mapper meta.ResettableRESTMapper) (runner, error) {
	started := make(chan struct{})
	close(started)
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient, mapper, gcIgnored, objects, started)
	if err != nil {
		return nil, fmt.Errorf("garbage collector: %w", err)
	}
	return func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { gc.Run(ctx, gcWorkers, mapperRefresh) })
		wg.Go(func() { gc.Sync(ctx, client.Discovery(), gcSyncPeriod) })
		wg.Wait()
	}, nil
}
