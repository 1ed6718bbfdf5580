package adoption

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/join"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

const requestTimeout = 30 * time.Second

// fieldManager is who creates templates and policies.
const fieldManager = "isthmus-adopt"

// api is one API server.
type api struct {
	name   string
	client dynamic.Interface
	kinds  []kind
}

// kind is a resource that can be listed and created.
type kind struct {
	schema.GroupVersionKind
	resource, singular string
	short              []string
	namespaced         bool
}

func (k kind) gvr() schema.GroupVersionResource { return k.GroupVersion().WithResource(k.resource) }

func connect(ctx context.Context, name string, config *rest.Config) (*api, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Timeout = -1, requestTimeout
	own.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	a := &api{name: name, client: client}
	a.kinds, err = discover(ctx, disco)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

func discover(ctx context.Context, disco discovery.DiscoveryInterfaceWithContext) ([]kind, error) {
	resources, err := membership.Listable(ctx, disco)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	var out []kind
	for _, r := range resources {
		if !slices.Contains(r.Verbs, "create") {
			continue
		}
		out = append(out, kind{
			GroupVersionKind: schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
			resource:         r.Name, singular: r.SingularName, short: r.ShortNames, namespaced: r.Namespaced,
		})
	}
	return out, nil
}

// member reaches a cluster with the identity that applies: what it may not read
// the engine could not write.
func member(ctx context.Context, controlPlane *rest.Config, cluster string) (*api, error) {
	config, err := join.BreakGlass(ctx, controlPlane, cluster, "apply", membership.MinTokenLifetime)
	if err != nil {
		return nil, err
	}
	a, err := connect(ctx, cluster, config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return a, nil
}

func (a *api) resource(k kind, namespace string) dynamic.ResourceInterface {
	if !k.namespaced {
		return a.client.Resource(k.gvr())
	}
	return a.client.Resource(k.gvr()).Namespace(namespace)
}

// find returns nil when there is no such object.
func (a *api) find(ctx context.Context, k kind, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := a.resource(k, namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s %s in %s: %w", k.Kind, name, a.name, err)
	}
	return u, nil
}

// policyResource is where a policy object is kept.
func (a *api) policyResource(obj runtime.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("%T: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	res := a.client.Resource(policyv1alpha1.SchemeGroupVersion.WithResource(policyResources[u.GetKind()]))
	if ns := u.GetNamespace(); ns != "" {
		return res.Namespace(ns), u, nil
	}
	return res, u, nil
}

var policyResources = map[string]string{
	"PropagationPolicy": "propagationpolicies", "ClusterPropagationPolicy": "clusterpropagationpolicies",
	"OverridePolicy": "overridepolicies", "ClusterOverridePolicy": "clusteroverridepolicies",
}

// bindings lists the bindings of a namespace, or of cluster-scoped templates, by
// "GROUP/KIND/NAME" of their templates.
func (a *api) bindings(ctx context.Context, namespace string) (map[string]*workv1alpha2.ResourceBinding, error) {
	res := dynamic.ResourceInterface(a.client.Resource(workv1alpha2.SchemeGroupVersion.WithResource("clusterresourcebindings")))
	if namespace != "" {
		res = a.client.Resource(workv1alpha2.SchemeGroupVersion.WithResource("resourcebindings")).Namespace(namespace)
	}
	list, err := res.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("bindings: %w", err)
	}
	out := map[string]*workv1alpha2.ResourceBinding{}
	for i := range list.Items {
		b := &workv1alpha2.ResourceBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, b); err != nil {
			return nil, fmt.Errorf("binding %s: %w", list.Items[i].GetName(), err)
		}
		gv, err := schema.ParseGroupVersion(b.Spec.Resource.APIVersion)
		if err != nil {
			continue // not a binding of any template
		}
		out[bindingKey(gv.WithKind(b.Spec.Resource.Kind).GroupKind(), b.Spec.Resource.Name)] = b
	}
	return out, nil
}

func bindingKey(gk schema.GroupKind, name string) string {
	return gk.Group + "/" + gk.Kind + "/" + name
}

// until repeats check until it is done, fails, or the time is over.
func until(ctx context.Context, limit time.Duration, check func() (done bool, err error)) error {
	deadline := time.Now().Add(limit)
	for {
		done, err := check()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return context.DeadlineExceeded
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}
