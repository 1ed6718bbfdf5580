// Package admission runs validating admission over requests that are routed to
// members, so that a ValidatingAdmissionPolicy of the endpoint holds for Pods
// as it does for Deployments.
//
//	routed write -> object and old object -> ValidatingAdmissionPolicy -> gateway
//
// Mutating admission is the member's: it runs there with the member's own
// ServiceAccounts, LimitRanges and webhooks.
package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// bodyLimit is kube-apiserver's limit of a request body, in bytes.
const bodyLimit = 3 << 20

// Reader answers internal GETs of an object as served.
type Reader interface {
	ServeHTTP(w http.ResponseWriter, r *http.Request)
}

// Routed validates routed requests.
type Routed struct {
	chain  admission.ValidationInterface
	reader Reader
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
	return &Routed{chain: chain, reader: reader}, nil
}

// Admit validates one routed request. When it refuses it answers the client
// and returns false; otherwise the request it returns has its body intact.
func (a *Routed) Admit(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) (*http.Request, bool) {
	op := operation(info)
	if !a.chain.Handles(op) {
		return r, true
	}
	attributes, r, err := a.attributes(r, info, op)
	if err == nil && attributes != nil {
		err = a.chain.Validate(r.Context(), attributes, admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme))
	}
	if err != nil {
		gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(err, legacyscheme.Codecs, gv, w, r)
		return r, false
	}
	return r, true
}

var connects = map[string]bool{"exec": true, "attach": true, "portforward": true, "proxy": true}

func operation(info *request.RequestInfo) admission.Operation {
	switch {
	case connects[info.Subresource]:
		return admission.Connect
	case info.Verb == "create":
		return admission.Create
	case info.Verb == "delete" || info.Verb == "deletecollection":
		return admission.Delete
	}
	return admission.Update
}

// attributes describes the request. nil attributes mean there is nothing that
// a policy could look at here: the body is malformed, and the handler that
// decodes it says so better than admission would.
func (a *Routed) attributes(r *http.Request, info *request.RequestInfo, op admission.Operation) (admission.Attributes, *http.Request, error) {
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	user, _ := request.UserFrom(r.Context())
	dryRun := len(r.URL.Query()["dryRun"]) > 0
	record := func(object, old runtime.Object, gvk schema.GroupVersionKind, options runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(object, old, gvk, info.Namespace, info.Name, gvr, info.Subresource, op, options, dryRun, user)
	}
	switch op {
	case admission.Connect:
		options, gvk := connectOptions(r, info)
		if options == nil {
			return nil, r, nil
		}
		return record(options, nil, gvk, nil), r, nil
	case admission.Delete:
		old, gvk, err := a.present(r, info)
		if old == nil || err != nil {
			return nil, r, err
		}
		return record(nil, old, gvk, &metav1.DeleteOptions{}), r, nil
	case admission.Create:
		body, r, err := readBody(r)
		if err != nil {
			return nil, r, nil //nolint:nilerr // the handler reads it again and answers
		}
		object, gvk := proxy.DecodeObject(body)
		if object == nil {
			return nil, r, nil
		}
		audit.LogRequestObject(r.Context(), object, gvk.GroupVersion(), gvr, //nolint:contextcheck // the request's own
			info.Subresource, legacyscheme.Codecs)
		return record(object, nil, gvk, &metav1.CreateOptions{}), r, nil
	}
	return a.update(r, info, record) //nolint:contextcheck // the request carries it
}

func (a *Routed) update(r *http.Request, info *request.RequestInfo, record func(object, old runtime.Object, gvk schema.GroupVersionKind, options runtime.Object) admission.Attributes) (admission.Attributes, *http.Request, error) {
	old, gvk, err := a.present(r, info)
	if err != nil || old == nil {
		return nil, r, err
	}
	body, r, err := readBody(r)
	if err != nil {
		return nil, r, nil //nolint:nilerr // the handler reads it again and answers
	}
	var object runtime.Object
	if info.Verb == "patch" {
		audit.LogRequestPatch(r.Context(), body)
		object = patched(old, r.Header.Get("Content-Type"), body)
	} else {
		object, _ = proxy.DecodeObject(body)
		if object != nil {
			audit.LogRequestObject(r.Context(), object, gvk.GroupVersion(), schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}, info.Subresource, legacyscheme.Codecs)
		}
	}
	if object == nil {
		return nil, r, nil
	}
	return record(object, old, gvk, &metav1.UpdateOptions{}), r, nil
}

// present reads the object as served, through the gateway, as the user does.
func (a *Routed) present(r *http.Request, info *request.RequestInfo) (runtime.Object, schema.GroupVersionKind, error) {
	if info.Name == "" {
		return nil, schema.GroupVersionKind{}, nil
	}
	get := *info
	get.Verb, get.Subresource = "get", ""
	ctx := request.WithRequestInfo(context.WithoutCancel(r.Context()), &get)
	inner, err := http.NewRequestWithContext(ctx, http.MethodGet, info.Path, http.NoBody)
	if err != nil {
		return nil, schema.GroupVersionKind{}, fmt.Errorf("read the present object: %w", err)
	}
	inner.Header.Set("Accept", "application/json")
	answer := httptest.NewRecorder()
	a.reader.ServeHTTP(answer, inner)
	if answer.Code != http.StatusOK {
		return nil, schema.GroupVersionKind{}, nil
	}
	object, gvk := proxy.DecodeObject(answer.Body.Bytes())
	return object, gvk, nil
}

// readBody takes at most one byte more than the limit and gives the request a
// body that can be read again.
func readBody(r *http.Request) ([]byte, *http.Request, error) {
	if r.Body == nil {
		return nil, r, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
	rest := r.Body
	r = r.Clone(r.Context())
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	if err != nil {
		return nil, r, fmt.Errorf("read the body: %w", err)
	}
	return body, r, nil
}

func connectOptions(r *http.Request, info *request.RequestInfo) (runtime.Object, schema.GroupVersionKind) {
	kinds := map[string]string{"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions", "proxy": "PodProxyOptions"}
	kind := kinds[info.Subresource]
	if info.Resource == "nodes" {
		kind = "NodeProxyOptions"
	}
	gv := schema.GroupVersion{Version: "v1"}
	gvk := gv.WithKind(kind)
	object, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, gvk
	}
	if err := legacyscheme.ParameterCodec.DecodeParameters(r.URL.Query(), gv, object); err != nil {
		return nil, gvk
	}
	return object, gvk
}

// patched applies a patch in memory; nil when it does not apply, which the
// member then says itself.
func patched(old runtime.Object, contentType string, patch []byte) runtime.Object {
	object, err := applyPatch(old, contentType, patch)
	if err != nil {
		return nil
	}
	if _, err := meta.Accessor(object); err != nil {
		return nil
	}
	return object
}
