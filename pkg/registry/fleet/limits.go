package fleet

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// limits knows which clusters namespaces are limited to.
type limits struct {
	client   metadata.Interface
	informer toolscache.SharedIndexInformer
}

func newLimits(controlPlane *rest.Config) (*limits, error) {
	client, err := metadata.NewForConfig(controlPlane)
	if err != nil {
		return nil, fmt.Errorf("client that reads namespaces: %w", err)
	}
	informer := metadatainformer.NewFilteredMetadataInformer(client, namespaces, "", 0, toolscache.Indexers{}, nil).Informer()
	// Of each the name and the limit.
	err = informer.SetTransform(func(obj any) (any, error) {
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return obj, nil
		}
		kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
		kept.Name, kept.UID, kept.ResourceVersion = m.Name, m.UID, m.ResourceVersion
		if text, limited := m.Annotations[placement.ClustersAnnotation]; limited {
			kept.Annotations = map[string]string{placement.ClustersAnnotation: text}
		}
		return kept, nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch of namespaces: %w", err)
	}
	return &limits{client: client, informer: informer}, nil
}

// of implements gateway.Options.Limit. A namespace that the watch has not shown
// yet is read.
func (l *limits) of(ctx context.Context, namespace string) ([]cache.ClusterName, error) {
	var ns *metav1.PartialObjectMetadata
	if obj, found, err := l.informer.GetStore().GetByKey(namespace); err == nil && found {
		ns, _ = obj.(*metav1.PartialObjectMetadata)
	}
	if ns == nil {
		var err error
		ns, err = l.client.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil // whoever creates in it is told so
		}
		if err != nil {
			return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
		}
	}
	text, limited := ns.Annotations[placement.ClustersAnnotation]
	if !limited {
		return nil, nil
	}
	names, err := placement.ParseClusters(text)
	if err != nil {
		return []cache.ClusterName{}, nil //nolint:nilerr // as the engine does: none
	}
	out := make([]cache.ClusterName, 0, len(names))
	for _, n := range names {
		out = append(out, cache.ClusterName(n))
	}
	return out, nil
}
