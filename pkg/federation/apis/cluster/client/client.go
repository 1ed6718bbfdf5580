// Package client is the typed client of Clusters.
package client

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Clusters reads and writes Cluster objects.
type Clusters interface {
	Create(ctx context.Context, cluster *v1alpha1.Cluster, opts metav1.CreateOptions) (*v1alpha1.Cluster, error)
	Update(ctx context.Context, cluster *v1alpha1.Cluster, opts metav1.UpdateOptions) (*v1alpha1.Cluster, error)
	UpdateStatus(ctx context.Context, cluster *v1alpha1.Cluster, opts metav1.UpdateOptions) (*v1alpha1.Cluster, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1alpha1.Cluster, error)
	List(ctx context.Context, opts metav1.ListOptions) (*v1alpha1.ClusterList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1alpha1.Cluster, error)
}

// NewForConfig makes a client of Clusters for the control plane.
func NewForConfig(config *rest.Config) (Clusters, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("HTTP client for Clusters: %w", err)
	}
	return NewForConfigAndClient(config, httpClient)
}

// NewForConfigAndClient is NewForConfig over a given HTTP client.
func NewForConfigAndClient(config *rest.Config, httpClient *http.Client) (Clusters, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme of Clusters: %w", err)
	}
	own := rest.CopyConfig(config)
	gv := v1alpha1.SchemeGroupVersion
	own.GroupVersion = &gv
	own.APIPath = "/apis"
	// A custom resource is served as JSON only.
	own.ContentType = runtime.ContentTypeJSON
	own.AcceptContentTypes = runtime.ContentTypeJSON
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	restClient, err := rest.RESTClientForConfigAndClient(own, httpClient)
	if err != nil {
		return nil, fmt.Errorf("REST client for Clusters: %w", err)
	}
	return gentype.NewClientWithList[*v1alpha1.Cluster, *v1alpha1.ClusterList](
		"clusters", restClient, runtime.NewParameterCodec(scheme), "",
		func() *v1alpha1.Cluster { return &v1alpha1.Cluster{} },
		func() *v1alpha1.ClusterList { return &v1alpha1.ClusterList{} },
	), nil
}
