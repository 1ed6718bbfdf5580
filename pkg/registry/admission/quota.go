package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// quotaWorkers decide side by side about different namespaces.
const quotaWorkers = 5

// quotas judges routed Pods by the endpoint's ResourceQuotas, whose usage spans
// all clusters. A Pod is counted with the defaults it will get in its member:
// those of the API and of the namespace's LimitRanges.
type quotas struct {
	lister corelisters.ResourceQuotaLister
	ranges admission.MutationInterface
	judge  admission.ValidationInterface
}

func newQuotas(client kubernetes.Interface, shared informers.SharedInformerFactory, drained <-chan struct{}) (*quotas, error) {
	configuration, errConfiguration := install.NewQuotaConfigurationForAdmission(shared, nil)
	judge, errQuota := resourcequota.NewResourceQuota(nil, quotaWorkers)
	ranges, errRanges := limitranger.NewLimitRanger(&limitranger.DefaultLimitRangerActions{})
	if err := errors.Join(errConfiguration, errQuota, errRanges); err != nil {
		return nil, fmt.Errorf("quota admission: %w", err)
	}
	judge.SetDrainedNotification(drained)
	judge.SetExternalKubeClientSet(client)
	judge.SetExternalKubeInformerFactory(shared)
	judge.SetQuotaConfiguration(configuration)
	ranges.SetExternalKubeClientSet(client)
	ranges.SetExternalKubeInformerFactory(shared)
	if err := errors.Join(judge.ValidateInitialization(), ranges.ValidateInitialization()); err != nil {
		return nil, fmt.Errorf("quota admission: %w", err)
	}
	return &quotas{lister: shared.Core().V1().ResourceQuotas().Lister(), ranges: ranges, judge: judge}, nil
}

// concern says whether a quota has a say in a request. Where there is none, a
// write costs no further read.
func (q *quotas) concern(info *request.RequestInfo) (bool, error) {
	if q == nil || info.APIGroup != "" || info.Resource != "pods" || info.Namespace == "" {
		return false, nil
	}
	switch {
	case info.Subresource != "" && info.Subresource != "resize":
		return false, nil
	case info.Verb != "create" && info.Verb != "update" && info.Verb != "patch":
		return false, nil
	}
	found, err := q.lister.ResourceQuotas(info.Namespace).List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list the quotas: %w", err)
	}
	return len(found) > 0, nil
}

// validate refuses a Pod for which there is no room, and counts one for which
// there is.
func (q *quotas) validate(ctx context.Context, object runtime.Object, attributes func(runtime.Object) admission.Attributes, interfaces admission.ObjectInterfaces) error {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	pod = pod.DeepCopy()
	corev1defaults.SetObjectDefaults_Pod(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return fmt.Errorf("count the Pod: %w", err)
	}
	if a := attributes(internal); a.GetOperation() == admission.Create {
		if err := q.ranges.Admit(ctx, a, interfaces); err != nil {
			return err
		}
	}
	return q.judge.Validate(ctx, attributes(internal), interfaces)
}
