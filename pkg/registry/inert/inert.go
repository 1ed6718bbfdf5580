// Package inert keeps what leads to a Service inside a cluster from acting in
// the control plane, where no Pod answers for a Service: webhook configurations
// and APIServices of that sort are objects for the members.
//
//	watch cache -> shared informer -> without in-cluster targets -> admission, aggregator
//
// The stored objects are untouched; only what the control plane's own admission
// and aggregator see of them is cut.
package inert

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
)

// Webhooks cuts the informers that admission reads. Call it before they start.
func Webhooks(shared informers.SharedInformerFactory) error {
	group := shared.Admissionregistration().V1()
	for _, i := range []cache.SharedIndexInformer{
		group.ValidatingWebhookConfigurations().Informer(), group.MutatingWebhookConfigurations().Informer(),
	} {
		if err := i.SetTransform(withoutServices); err != nil {
			return fmt.Errorf("cut webhooks with an in-cluster target: %w", err)
		}
	}
	return nil
}

// APIServices cuts the informer that the aggregator reads: an APIService with
// an in-cluster target is one that this server answers itself, by what CRDs it
// has of the group. Call it before the informer starts.
func APIServices(shared apiregistration.SharedInformerFactory) error {
	if err := shared.Apiregistration().V1().APIServices().Informer().SetTransform(withoutServices); err != nil {
		return fmt.Errorf("cut APIServices with an in-cluster target: %w", err)
	}
	return nil
}

func withoutServices(obj any) (any, error) {
	switch o := obj.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		o.Webhooks = slices.DeleteFunc(o.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return inCluster(w.ClientConfig) })
	case *admissionv1.MutatingWebhookConfiguration:
		o.Webhooks = slices.DeleteFunc(o.Webhooks, func(w admissionv1.MutatingWebhook) bool { return inCluster(w.ClientConfig) })
	case *apiregistrationv1.APIService:
		o.Spec.Service, o.Spec.CABundle, o.Spec.InsecureSkipTLSVerify = nil, nil, false
	}
	return obj, nil
}

func inCluster(c admissionv1.WebhookClientConfig) bool { return c.Service != nil }
