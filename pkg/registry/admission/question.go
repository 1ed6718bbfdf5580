package admission

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// question is one request as the policies are asked about it.
type question struct {
	*Routed
	info   *request.RequestInfo
	op     admission.Operation
	body   []byte
	object runtime.Object // what the body holds; nil for patches and deletions
	kind   schema.GroupVersionKind

	policies, limited bool // who is asked
}

func operation(info *request.RequestInfo) admission.Operation {
	switch {
	case proxy.Connects[info.Subresource]:
		return admission.Connect
	case info.Verb == "create":
		return admission.Create
	case info.Verb == "delete" || info.Verb == "deletecollection":
		return admission.Delete
	}
	return admission.Update
}

// read takes the body and returns a request that has it still.
func (q *question) read(r *http.Request) (*http.Request, error) {
	if q.op == admission.Connect {
		return r, nil
	}
	body, r, err := proxy.PeekBody(r)
	if err != nil {
		return r, apierrors.NewBadRequest(err.Error())
	}
	q.body = body
	if q.op == admission.Delete && len(body) == 0 {
		return r, nil
	}
	if q.info.Verb != "patch" {
		q.object, q.kind = proxy.DecodeObject(body)
	}
	return r, nil
}

func (q *question) audit(ctx context.Context) {
	switch {
	case q.object != nil:
		audit.LogRequestObject(ctx, q.object, q.kind.GroupVersion(), q.resource(), q.info.Subresource, legacyscheme.Codecs)
	case q.info.Verb == "patch":
		audit.LogRequestPatch(ctx, q.body)
	}
}

func (q *question) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: q.info.APIGroup, Version: q.info.APIVersion, Resource: q.info.Resource}
}

// validate asks the policies. A body that cannot be read here is refused: what
// a policy does not see must not pass it.
func (q *question) validate(r *http.Request) error {
	switch q.op {
	case admission.Connect:
		options, gvk, err := connectOptions(r, q.info)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		return q.ask(r, options, nil, gvk, q.info.Name, nil)
	case admission.Create:
		if q.object == nil {
			return apierrors.NewBadRequest("the object provided is unrecognized")
		}
		return q.ask(r, q.object, nil, q.kind, q.info.Name, &metav1.CreateOptions{})
	case admission.Delete:
		return q.deletion(r)
	}
	return q.update(r)
}

func (q *question) update(r *http.Request) error {
	old, gvk, err := q.present(r, q.info)
	if err != nil || old == nil {
		return err
	}
	object := q.object
	if q.info.Verb == "patch" {
		if object, err = applyPatch(old, r.Header.Get("Content-Type"), q.body); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the patch cannot be judged by the admission policies in force: %v", err))
		}
	}
	if object == nil {
		return apierrors.NewBadRequest("the object provided is unrecognized")
	}
	return q.ask(r, object, old, gvk, q.info.Name, &metav1.UpdateOptions{})
}

// deletion asks about one object, or about each of a collection.
func (q *question) deletion(r *http.Request) error {
	old, gvk, err := q.present(r, q.info)
	if err != nil || old == nil {
		return err
	}
	if q.info.Name != "" {
		return q.ask(r, nil, old, gvk, q.info.Name, &metav1.DeleteOptions{})
	}
	items, err := meta.ExtractList(old)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("read the collection: %w", err))
	}
	gvk.Kind = gvk.Kind[:max(0, len(gvk.Kind)-len("List"))]
	for _, item := range items {
		accessor, err := meta.Accessor(item)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("read the collection: %w", err))
		}
		if err := q.ask(r, nil, item, gvk, accessor.GetName(), &metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (q *question) ask(r *http.Request, object, old runtime.Object, gvk schema.GroupVersionKind, name string, options runtime.Object) error {
	user, _ := request.UserFrom(r.Context())
	dryRun := len(r.URL.Query()["dryRun"]) > 0
	attributes := func(object runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(object, old, gvk, q.info.Namespace, name, q.resource(), q.info.Subresource, q.op, options, dryRun, user)
	}
	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	if q.policies {
		if err := q.chain.Validate(r.Context(), attributes(object), interfaces); err != nil {
			return err
		}
	}
	if !q.limited {
		return nil
	}
	// Last, once nobody else refuses: it counts what it lets in.
	return q.quotas.validate(r.Context(), object, attributes, interfaces)
}

func connectOptions(r *http.Request, info *request.RequestInfo) (runtime.Object, schema.GroupVersionKind, error) {
	kinds := map[string]string{"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions", "proxy": "PodProxyOptions"}
	kind := kinds[info.Subresource]
	if info.Resource == "nodes" {
		kind = "NodeProxyOptions"
	}
	gv := schema.GroupVersion{Version: "v1"}
	gvk := gv.WithKind(kind)
	object, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, gvk, err
	}
	return object, gvk, legacyscheme.ParameterCodec.DecodeParameters(r.URL.Query(), gv, object)
}
