package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	configv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/config/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Question names a template.
type Question struct {
	Endpoint  *rest.Config
	Namespace string
	Name      []string // KIND/NAME, or KIND and NAME
	// StateNamespace holds the engine's ConfigMaps.
	StateNamespace string
}

// ErrName is returned for a name that is not of the form KIND/NAME.
var ErrName = errors.New("name one template as KIND/NAME, such as deployment/web")

const (
	requestTimeout = 20 * time.Second
	memberTimeout  = 5 * time.Second
	// atOnce is how many members are asked at once.
	atOnce = 16
)

// gatherer reads from the endpoint.
type gatherer struct {
	config *rest.Config
	client dynamic.Interface
	mapper meta.RESTMapper
}

// Gather reads all that the report is made of.
func Gather(ctx context.Context, q Question) (Facts, error) {
	config := rest.CopyConfig(q.Endpoint)
	config.QPS, config.Timeout, config.WarningHandler = -1, requestTimeout, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return Facts{}, fmt.Errorf("client of the endpoint: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Facts{}, fmt.Errorf("client of the endpoint: %w", err)
	}
	cached := memory.NewMemCacheClient(disco)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	g := gatherer{config: config, client: client, mapper: mapper}
	return g.facts(ctx, q)
}

func (g gatherer) facts(ctx context.Context, q Question) (Facts, error) {
	mapping, name, err := g.resolve(q.Name)
	if err != nil {
		return Facts{}, err
	}
	namespace := q.Namespace
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	} else if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	u, err := g.client.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Template: u, Resource: mapping.Resource.Resource}
	for _, read := range []func(context.Context, *Facts) error{g.binding, g.policies, g.overrides, g.clusters, g.limit, g.customizations} {
		if err := read(ctx, &f); err != nil {
			return Facts{}, err
		}
	}
	g.breaker(ctx, q.StateNamespace, &f)
	g.copies(ctx, mapping.Resource, &f)
	return f, nil
}

// resolve finds what KIND/NAME means, as kubectl does.
func (g gatherer) resolve(words []string) (*meta.RESTMapping, string, error) {
	if len(words) == 1 {
		kind, name, ok := strings.Cut(words[0], "/")
		if !ok {
			return nil, "", ErrName
		}
		words = []string{kind, name}
	}
	if len(words) != 2 || words[0] == "" || words[1] == "" {
		return nil, "", ErrName
	}
	gvr, gr := schema.ParseResourceArg(strings.ToLower(words[0]))
	if gvr != nil {
		if gvk, err := g.mapper.KindFor(*gvr); err == nil {
			mapping, err := g.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			return mapping, words[1], err
		}
	}
	gvk, err := g.mapper.KindFor(gr.WithVersion(""))
	if err != nil {
		return nil, "", fmt.Errorf("%q is no kind of the endpoint: %w", words[0], err)
	}
	mapping, err := g.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	return mapping, words[1], err
}

func (g gatherer) binding(ctx context.Context, f *Facts) error {
	u := f.Template
	resource := "resourcebindings"
	if u.GetNamespace() == "" {
		resource = "clusterresourcebindings"
	}
	gvr := workv1alpha2.SchemeGroupVersion.WithResource(resource)
	for _, name := range engine.BindingNames(u.GroupVersionKind(), u.GetNamespace(), u.GetName()) {
		found, err := g.client.Resource(gvr).Namespace(u.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("binding: %w", err)
		}
		b := &workv1alpha2.ResourceBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, b); err != nil {
			return fmt.Errorf("binding %s: %w", name, err)
		}
		ref := schema.FromAPIVersionAndKind(b.Spec.Resource.APIVersion, b.Spec.Resource.Kind)
		if ref.GroupKind() == u.GroupVersionKind().GroupKind() && b.Spec.Resource.Name == u.GetName() {
			f.Binding = b
			return nil
		}
	}
	return nil
}

// list reads all objects of a resource; into is called for each.
func list[T any](ctx context.Context, g gatherer, gvr schema.GroupVersionResource, namespace string, into func(*T)) error {
	found, err := g.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", gvr.Resource, err)
	}
	for i := range found.Items {
		out := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, out); err != nil {
			return fmt.Errorf("%s %s: %w", gvr.Resource, found.Items[i].GetName(), err)
		}
		into(out)
	}
	return nil
}

func (g gatherer) policies(ctx context.Context, f *Facts) error {
	gv := policyv1alpha1.SchemeGroupVersion
	err := list(ctx, g, gv.WithResource("clusterpropagationpolicies"), "", func(p *policyv1alpha1.ClusterPropagationPolicy) {
		f.Policies = append(f.Policies, &placement.Policy{Name: p.Name, UID: p.UID, Default: p.Labels[placement.DefaultPolicyLabel] == "true", Spec: p.Spec})
	})
	if ns := f.Template.GetNamespace(); err == nil && ns != "" {
		err = list(ctx, g, gv.WithResource("propagationpolicies"), ns, func(p *policyv1alpha1.PropagationPolicy) {
			f.Policies = append(f.Policies, &placement.Policy{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Spec: p.Spec})
		})
	}
	return err
}

func (g gatherer) overrides(ctx context.Context, f *Facts) error {
	gv := policyv1alpha1.SchemeGroupVersion
	err := list(ctx, g, gv.WithResource("clusteroverridepolicies"), "", func(p *policyv1alpha1.ClusterOverridePolicy) {
		f.Overrides = append(f.Overrides, override.Policy{Name: p.Name, Spec: p.Spec})
	})
	if ns := f.Template.GetNamespace(); err == nil && ns != "" {
		err = list(ctx, g, gv.WithResource("overridepolicies"), ns, func(p *policyv1alpha1.OverridePolicy) {
			f.Overrides = append(f.Overrides, override.Policy{Namespace: p.Namespace, Name: p.Name, Spec: p.Spec})
		})
	}
	return err
}

// limit reads what the namespace allows; who may not read it is not told.
func (g gatherer) limit(ctx context.Context, f *Facts) error {
	if f.Template.GetNamespace() == "" {
		return nil
	}
	ns, err := g.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, f.Template.GetNamespace(), metav1.GetOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if text, limited := ns.GetAnnotations()[placement.ClustersAnnotation]; limited {
		if f.Limit, err = placement.ParseClusters(text); err != nil {
			f.Limit = []string{}
		}
	}
	return nil
}

func (g gatherer) clusters(ctx context.Context, f *Facts) error {
	return list(ctx, g, clusterv1alpha1.SchemeGroupVersion.WithResource("clusters"), "", func(c *clusterv1alpha1.Cluster) {
		f.Clusters = append(f.Clusters, *c)
	})
}

func (g gatherer) customizations(ctx context.Context, f *Facts) error {
	var all []*interpreter.Customization
	err := list(ctx, g, configv1alpha1.SchemeGroupVersion.WithResource("resourceinterpretercustomizations"), "",
		func(c *interpreter.Customization) { all = append(all, c) })
	if err != nil {
		return err
	}
	if f.Interpreter, err = interpreter.New(ctx); err != nil {
		return err
	}
	f.Interpreter.Load(ctx, all) // what fails says so where it is used
	return nil
}

// breaker reads what waits; who may not read that learns the rest.
func (g gatherer) breaker(ctx context.Context, namespace string, f *Facts) {
	cm, err := g.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace).
		Get(ctx, engine.BreakerName, metav1.GetOptions{})
	if err != nil {
		return
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", engine.BreakerStatusKey)
	if text != "" && json.Unmarshal([]byte(text), &f.Breaker) != nil {
		f.Breaker = nil
	}
}

// copies reads the copies in the targets, through the endpoint.
func (g gatherer) copies(ctx context.Context, gvr schema.GroupVersionResource, f *Facts) {
	f.Copies = map[string]Copy{}
	if f.Binding == nil {
		return
	}
	var mu sync.Mutex
	for some := range slices.Chunk(f.Binding.Spec.Clusters, atOnce) {
		var wg sync.WaitGroup
		for _, target := range some {
			wg.Go(func() {
				c := g.copy(ctx, target.Name, gvr, f.Template)
				mu.Lock()
				defer mu.Unlock()
				f.Copies[target.Name] = c
			})
		}
		wg.Wait()
	}
}

func (g gatherer) copy(ctx context.Context, cluster string, gvr schema.GroupVersionResource, u *unstructured.Unstructured) Copy {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	config := rest.CopyConfig(g.config)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/apis/" + clusterv1alpha1.SchemeGroupVersion.String() + "/clusters/" + cluster + "/proxy"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return Copy{Problem: err.Error()}
	}
	found, err := client.Resource(gvr).Namespace(u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Copy{}
	case err != nil:
		return Copy{Problem: err.Error()}
	}
	return Copy{Object: found}
}
