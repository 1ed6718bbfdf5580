package memberkinds

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	importEvery = 10 * time.Second
	askWait     = 5 * time.Second
	// fieldManager of imported definitions.
	fieldManager = "isthmus-import"
)

// Member is a cluster whose definitions can be read.
type Member struct {
	Name   string
	Config *rest.Config
}

// Importer copies the definitions of wanted kinds from the members. Discovery
// stands on the copies and so never on a member being alive.
type Importer struct {
	// ControlPlane reaches the control plane past the router.
	ControlPlane *rest.Config
	// Wanted are custom kinds whose objects are the members'.
	Wanted []schema.GroupVersionResource
	// Members lists the members that answer, in join order.
	Members func() []Member
}

// Run imports until ctx ends.
func (i Importer) Run(ctx context.Context) error {
	if len(i.Wanted) == 0 {
		<-ctx.Done()
		return nil
	}
	client, err := apiextensions.NewForConfig(i.ControlPlane)
	if err != nil {
		return fmt.Errorf("client of the imported kinds: %w", err)
	}
	tick := time.NewTicker(importEvery)
	defer tick.Stop()
	for {
		for _, gvr := range i.Wanted {
			if err := i.importKind(ctx, client, gvr); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Member kind is not served as the members define it", "resource", gvr)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (i Importer) importKind(ctx context.Context, client apiextensions.Interface, gvr schema.GroupVersionResource) error {
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	name := gvr.Resource + "." + gvr.Group
	present, err := crds.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		present, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("definition %s: %w", name, err)
	}
	want := Decide(present, gvr.Version, i.offers(ctx, name))
	switch {
	case want == nil:
		return nil
	case present == nil:
		_, err = crds.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	default:
		_, err = crds.Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return fmt.Errorf("import definition %s from cluster %q: %w", name, want.Annotations[From], err)
	}
	klog.FromContext(ctx).Info("Imported the definition of a member kind", "name", name, "cluster", want.Annotations[From])
	return nil
}

// offers asks all members at once; who does not answer in time offers nothing.
func (i Importer) offers(ctx context.Context, name string) []Offer {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	members := i.Members()
	found := make([]*apiextensionsv1.CustomResourceDefinition, len(members))
	var wg sync.WaitGroup
	for n, m := range members {
		wg.Go(func() {
			client, err := apiextensions.NewForConfig(m.Config)
			if err == nil {
				found[n], err = client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
			}
			if err != nil {
				found[n] = nil
				klog.FromContext(ctx).V(2).Info("Member offers no definition", "cluster", m.Name, "name", name, "err", err)
			}
		})
	}
	wg.Wait()
	var out []Offer
	for n, crd := range found {
		if crd != nil {
			out = append(out, Offer{Cluster: members[n].Name, Definition: crd})
		}
	}
	return out
}
