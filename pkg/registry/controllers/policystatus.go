package controllers

import (
	"context"
	"fmt"

	extensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// policyStatus checks the types of expressions of admission policies and shows
// what is wrong in their status.
func policyStatus(client kubernetes.Interface, shared informers.SharedInformerFactory, mapper meta.RESTMapper) (runner, error) {
	builtIn := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme, extensionsscheme.Scheme)
	checker := &validating.TypeChecker{
		SchemaResolver: builtIn.Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()}),
		RestMapper:     mapper,
	}
	c, err := validatingadmissionpolicystatus.NewController(shared.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	if err != nil {
		return nil, fmt.Errorf("controller of admission policies: %w", err)
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}
