package adoption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/isthmus-dev/isthmus/pkg/federation/adopt"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
)

// ErrNotAdopted is returned for templates that no adoption has made.
var ErrNotAdopted = errors.New("it was not taken over by adopt")

// ReleaseRequest says what is to be given back.
type ReleaseRequest struct {
	ControlPlane *rest.Config
	Namespace    string
	// Names are KIND/NAME; none means all that was adopted in the namespace.
	Names  []string
	DryRun bool
	// Wait bounds each phase that waits for the engine.
	Wait time.Duration
	Out  io.Writer
}

// release is a ReleaseRequest under way.
type release struct {
	ReleaseRequest
	hub *api
}

// Release gives objects back to their clusters: they stay as they are, without
// our marks and owned by nobody of ours, and their templates go.
func Release(ctx context.Context, req ReleaseRequest) error {
	hub, err := connect(ctx, "the control plane", req.ControlPlane)
	if err != nil {
		return err
	}
	r := &release{ReleaseRequest: req, hub: hub}
	items, err := r.items(ctx)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		r.say("Nothing in %s was taken over by adopt.", r.Namespace)
		return nil
	}
	var errs []error
	for _, i := range slices.Backward(items) { // what others need goes last
		if err := r.one(ctx, i); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (r *release) say(format string, args ...any) {
	fmt.Fprintf(r.Out, format+"\n", args...) //nolint:errcheck // progress for people
}

// items are what is named, or what the adopted policies of the namespace select.
func (r *release) items(ctx context.Context) ([]*item, error) {
	var items []*item
	for _, word := range r.Names {
		kindWord, name, ok := strings.Cut(word, "/")
		if !ok || kindWord == "" || name == "" {
			return nil, fmt.Errorf("%q is not KIND/NAME, as in deployment/web", word)
		}
		k, err := resolve(r.hub.kinds, kindWord)
		if err != nil {
			return nil, err
		}
		i := &item{kind: k, name: name}
		if k.namespaced {
			i.namespace = r.Namespace
		}
		items = append(items, i)
	}
	if len(r.Names) > 0 {
		sortItems(items)
		return items, nil
	}
	list, err := r.hub.client.Resource(policyv1alpha1.SchemeGroupVersion.WithResource("propagationpolicies")).Namespace(r.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: adopt.AdoptedLabel + "=true"})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	for n := range list.Items {
		i, err := r.selected(&list.Items[n])
		if err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	sortItems(items)
	return items, nil
}

// selected is the one object that an adopted policy selects.
func (r *release) selected(policy *unstructured.Unstructured) (*item, error) {
	selectors, _, err := unstructured.NestedSlice(policy.Object, "spec", "resourceSelectors")
	if err != nil || len(selectors) != 1 {
		return nil, fmt.Errorf("policy %s selects more than one object: name what is to be released", policy.GetName())
	}
	s, _ := selectors[0].(map[string]any)
	text := func(field string) string { v, _ := s[field].(string); return v }
	for _, k := range r.hub.kinds {
		if k.Kind == text("kind") && k.GroupVersion().String() == text("apiVersion") {
			return &item{kind: k, namespace: policy.GetNamespace(), name: text("name")}, nil
		}
	}
	return nil, fmt.Errorf("policy %s: %w: %s", policy.GetName(), ErrUnknownKind, text("kind"))
}

func (r *release) one(ctx context.Context, i *item) error {
	propagation, override := r.policies(i)
	name := adopt.PolicyName(i.GroupVersion().String(), i.Kind, i.name)
	policy, err := propagation.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && policy.GetLabels()[adopt.AdoptedLabel] == "":
		return fmt.Errorf("%w: set preserveResourcesOnDeletion in its policy and delete the template", ErrNotAdopted)
	case err != nil:
		return err
	}
	template, err := r.hub.find(ctx, i.kind, i.namespace, i.name)
	if err != nil {
		return err
	}
	if r.DryRun {
		r.say("%s: would be released (dry run, nothing was changed)", i)
		return nil
	}
	if template != nil && !isMembers(template) {
		if err := r.letGo(ctx, i, template, propagation, name); err != nil {
			return err
		}
	}
	for _, res := range []dynamic.ResourceInterface{override, propagation} {
		if err := res.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	r.say("%s: released, it stays as it is", i)
	return nil
}

func (r *release) policies(i *item) (propagation, override dynamic.ResourceInterface) {
	resource := policyv1alpha1.SchemeGroupVersion.WithResource
	if i.namespace == "" {
		return r.hub.client.Resource(resource("clusterpropagationpolicies")), r.hub.client.Resource(resource("clusteroverridepolicies"))
	}
	return r.hub.client.Resource(resource("propagationpolicies")).Namespace(i.namespace),
		r.hub.client.Resource(resource("overridepolicies")).Namespace(i.namespace)
}

// letGo deletes the template once it is recorded that its copies stay.
func (r *release) letGo(ctx context.Context, i *item, template *unstructured.Unstructured, propagation dynamic.ResourceInterface, policy string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"preserveResourcesOnDeletion": true}})
	if err != nil {
		return err
	}
	if _, err := propagation.Patch(ctx, policy, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return err
	}
	err = until(ctx, r.Wait, func() (bool, error) {
		bindings, err := r.hub.bindings(ctx, i.namespace)
		if err != nil {
			return false, err
		}
		return preserved(bindings[bindingKey(i.GroupKind(), i.name)]), nil
	})
	if err != nil {
		return fmt.Errorf("the binding does not say that the copies stay: %w", err)
	}
	uid, background := template.GetUID(), metav1.DeletePropagationBackground
	err = r.hub.resource(i.kind, i.namespace).Delete(ctx, i.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("template: %w", err)
	}
	err = until(ctx, r.Wait, func() (bool, error) {
		u, err := r.hub.find(ctx, i.kind, i.namespace, i.name)
		return err == nil && (u == nil || u.GetUID() != uid), err
	})
	if err != nil {
		return fmt.Errorf("the template is not gone yet: %w", err)
	}
	return nil
}

// preserved: the engine has recorded that the copies outlive the template.
func preserved(b *workv1alpha2.ResourceBinding) bool {
	return b != nil && ptr.Deref(b.Spec.PreserveResourcesOnDeletion, false)
}
