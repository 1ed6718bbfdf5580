package inert

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestOnlyInClusterTargetsAreCut(t *testing.T) {
	url := admissionv1.WebhookClientConfig{URL: new("https://webhook.example.com")}
	service := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "a", Name: "b"}}
	validating := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{
		{Name: "one", ClientConfig: service}, {Name: "two", ClientConfig: url}, {Name: "three", ClientConfig: service},
	}}
	mutating := &admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{
		{Name: "one", ClientConfig: url}, {Name: "two", ClientConfig: service},
	}}
	remote := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1", Service: &apiregistrationv1.ServiceReference{Name: "x"}, InsecureSkipTLSVerify: true},
	}
	for _, o := range []any{validating, mutating, remote} {
		if _, err := withoutServices(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(validating.Webhooks) != 1 || validating.Webhooks[0].Name != "two" {
		t.Errorf("validating: %+v", validating.Webhooks)
	}
	if len(mutating.Webhooks) != 1 || mutating.Webhooks[0].Name != "one" {
		t.Errorf("mutating: %+v", mutating.Webhooks)
	}
	if remote.Spec.Service != nil || remote.Spec.Group != "example.com" || remote.Spec.InsecureSkipTLSVerify {
		t.Errorf("APIService: %+v", remote.Spec)
	}
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if got, err := withoutServices(other); err != nil || got != any(other) {
		t.Errorf("another object: %v %v", got, err)
	}
}
