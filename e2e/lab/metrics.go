package lab

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// registerMetrics makes metrics.k8s.io of the member lead to our metrics-server.
// The Service is an ExternalName to this machine, because neither a cluster IP
// nor a loopback endpoint can lead there.
func (m *Member) registerMetrics(ctx context.Context, client kubernetes.Interface) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-server", Namespace: metav1.NamespaceSystem},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err := client.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("metrics: %w", err)
	}
	apiService, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1",
		"kind":       "APIService",
		"metadata":   map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1",
			"groupPriorityMinimum": 100, "versionPriority": 100,
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": service.Namespace, "name": service.Name, "port": m.ports.Metrics},
		},
	})
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	force := true
	err = client.CoreV1().RESTClient().Patch(types.ApplyPatchType).
		AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").
		VersionedParams(&metav1.PatchOptions{FieldManager: "lab", Force: &force}, metav1.ParameterCodec).
		Body(apiService).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("metrics: register the APIService: %w", err)
	}
	return nil
}
