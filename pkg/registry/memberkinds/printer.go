package memberkinds

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirest "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Printer knows the columns that the control plane's definitions give their
// kinds. Before Run has read them it knows none.
type Printer struct {
	mu    sync.RWMutex
	known map[schema.GroupKind]map[string]apirest.TableConvertor // by version
}

// Columns prints a kind; nil where nothing but name and age is known.
func (p *Printer) Columns(gvk schema.GroupVersionKind) apirest.TableConvertor {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[gvk.GroupKind()][gvk.Version]
}

// Run follows the definitions until ctx ends.
func (p *Printer) Run(ctx context.Context, controlPlane *rest.Config) error {
	client, err := apiextensions.NewForConfig(controlPlane)
	if err != nil {
		return fmt.Errorf("client of the definitions: %w", err)
	}
	informer := informers.NewSharedInformerFactory(client, 0).Apiextensions().V1().CustomResourceDefinitions().Informer()
	if err := informer.SetTransform(onlyColumns); err != nil {
		return fmt.Errorf("follow the definitions: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.set(ctx, obj) },
		UpdateFunc: func(_, obj any) { p.set(ctx, obj) },
		DeleteFunc: p.forget,
	})
	if err != nil {
		return fmt.Errorf("follow the definitions: %w", err)
	}
	informer.RunWithContext(ctx)
	return nil
}

// onlyColumns drops the schemas, which are most of a definition.
func onlyColumns(obj any) (any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj, nil
	}
	crd.ManagedFields = nil
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema = nil
	}
	return crd, nil
}

func (p *Printer) set(ctx context.Context, obj any) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	versions := map[string]apirest.TableConvertor{}
	for _, v := range crd.Spec.Versions {
		if len(v.AdditionalPrinterColumns) == 0 {
			continue
		}
		convertor, err := tableconvertor.New(v.AdditionalPrinterColumns)
		if err != nil {
			klog.FromContext(ctx).Info("Columns of a definition cannot be read", "definition", crd.Name, "version", v.Name, "err", err)
			continue
		}
		versions[v.Name] = convertor
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[schema.GroupKind]map[string]apirest.TableConvertor{}
	}
	p.known[kindOf(crd)] = versions
}

func (p *Printer) forget(obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.known, kindOf(crd))
	}
}

func kindOf(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupKind {
	return schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
}
