// Package admission runs validating admission over requests that are routed to
// members, so that a ValidatingAdmissionPolicy of the endpoint holds for Pods
// as it does for Deployments, and a ResourceQuota for all clusters together.
//
//	routed write -> object and old object -> ValidatingAdmissionPolicy -> ResourceQuota -> gateway
//
// Mutating admission is the member's: it runs there with the member's own
// ServiceAccounts, LimitRanges and webhooks.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// Reader answers internal GETs of an object as served.
type Reader interface {
	ServeHTTP(w http.ResponseWriter, r *http.Request)
}

// Routed validates routed requests.
type Routed struct {
	chain      admission.ValidationInterface
	reader     Reader
	namespaces corelisters.NamespaceLister
	live       typedcorev1.NamespacesGetter // where the lister may be behind
	bindings   admissionlisters.ValidatingAdmissionPolicyBindingLister
	quotas     *quotas
}

// NewRouted builds the chain from the control plane's configuration. reader is
// asked for the present object where a policy compares with it.
func NewRouted(generic *genericapiserver.Config, shared informers.SharedInformerFactory, reader Reader) (*Routed, error) {
	client, errClient := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	dyn, errDynamic := dynamic.NewForConfig(generic.LoopbackClientConfig)
	if err := errors.Join(errClient, errDynamic); err != nil {
		return nil, fmt.Errorf("clients of routed admission: %w", err)
	}
	options := serveroptions.NewAdmissionOptions()
	options.RecommendedPluginOrder = []string{validating.PluginName}
	// A copy takes the chain and the start hook that the options set.
	scratch := *generic
	scratch.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	err := options.ApplyTo(&scratch, shared, client, dyn, utilfeature.DefaultFeatureGate,
		compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent))
	if err != nil {
		return nil, fmt.Errorf("build routed admission: %w", err)
	}
	chain, ok := scratch.AdmissionControl.(admission.ValidationInterface)
	if !ok {
		return nil, errors.New("routed admission has no validating plugin")
	}
	quotas, err := newQuotas(client, shared, generic.DrainedNotify())
	if err != nil {
		return nil, err
	}
	return &Routed{
		chain: chain, reader: reader, quotas: quotas,
		namespaces: shared.Core().V1().Namespaces().Lister(),
		live:       client.CoreV1(),
		bindings:   shared.Admissionregistration().V1().ValidatingAdmissionPolicyBindings().Lister(),
	}, nil
}

// Admit validates one routed request. When it refuses it answers the client
// and returns false; otherwise the request it returns has its body intact.
// What cannot be judged while policies are in force is refused.
func (a *Routed) Admit(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) (*http.Request, bool) {
	r, err := a.admit(r, info)
	if err != nil {
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(err, legacyscheme.Codecs, gv, w, r)
		return r, false
	}
	return r, true
}

func (a *Routed) admit(r *http.Request, info *request.RequestInfo) (*http.Request, error) {
	if err := a.checkNamespace(r.Context(), info); err != nil { //nolint:contextcheck // the request's own
		return r, err
	}
	active, err := a.active()
	if err != nil {
		return r, err
	}
	audited := proxy.Audits(r.Context(), auditinternal.LevelRequest)
	limited, err := a.quotas.concern(info)
	if err != nil {
		return r, err
	}
	if !active && !audited && !limited {
		return r, nil
	}
	q := &question{Routed: a, info: info, op: operation(info), policies: active, limited: limited}
	if r, err = q.read(r); err != nil {
		return r, err
	}
	if audited {
		q.audit(r.Context()) //nolint:contextcheck // the request's own
	}
	if !active && !limited {
		return r, nil
	}
	return r, q.validate(r)
}

// active says whether any policy is in force. Without one nothing is judged,
// and a write costs no further read.
func (a *Routed) active() (bool, error) {
	bindings, err := a.bindings.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list the bindings of admission policies: %w", err)
	}
	return len(bindings) > 0, nil
}

// checkNamespace answers for a creation as the namespace lifecycle admission of
// one cluster does.
// A namespace that was made, or made anew, a moment before is there.
func (a *Routed) checkNamespace(ctx context.Context, info *request.RequestInfo) error {
	if info.Verb != "create" || info.Subresource != "" || info.Namespace == "" {
		return nil
	}
	ns, err := a.namespaces.Get(info.Namespace)
	if apierrors.IsNotFound(err) || err == nil && ns.Status.Phase == corev1.NamespaceTerminating {
		ns, err = a.live.Namespaces().Get(ctx, info.Namespace, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), info.Namespace)
	}
	if err != nil {
		return fmt.Errorf("read the namespace: %w", err)
	}
	if ns.Status.Phase == corev1.NamespaceTerminating {
		gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		return apierrors.NewForbidden(gr, info.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", info.Namespace))
	}
	return nil
}

// present reads the object as served, through the gateway, as the user does.
// For a collection it is the list of what the selectors match. nil means that
// there is none, which the handler says itself.
func (a *Routed) present(r *http.Request, info *request.RequestInfo) (runtime.Object, schema.GroupVersionKind, error) {
	get := *info
	get.Verb, get.Subresource = "get", ""
	if info.Name == "" {
		get.Verb = "list"
	}
	ctx := request.WithRequestInfo(context.WithoutCancel(r.Context()), &get)
	inner, err := http.NewRequestWithContext(ctx, http.MethodGet, info.Path, http.NoBody)
	if err != nil {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("read the present object: %w", err)
	}
	inner.Header.Set("Accept", "application/json")
	if info.Name == "" {
		selectors := url.Values{}
		for _, name := range []string{"labelSelector", "fieldSelector"} {
			if v := r.URL.Query().Get(name); v != "" {
				selectors.Set(name, v)
			}
		}
		inner.URL.RawQuery = selectors.Encode()
	}
	answer := httptest.NewRecorder()
	a.reader.ServeHTTP(answer, inner)
	object, gvk := proxy.DecodeObject(answer.Body.Bytes())
	switch status, failed := object.(*metav1.Status); {
	case answer.Code == http.StatusNotFound:
		return nil, gvk, nil
	case failed:
		return nil, gvk, &apierrors.StatusError{ErrStatus: *status}
	case answer.Code != http.StatusOK || object == nil:
		return nil, gvk, apierrors.NewInternalError(fmt.Errorf("the present object cannot be read: status %d", answer.Code))
	}
	return object, gvk, nil
}
