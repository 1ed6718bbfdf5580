package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

const templateAnnotation = "isthmus.dev/template"

// markLabels and markAnnotations are what the engine puts on managed copies.
var (
	markLabels = []string{
		managedLabel,
		"resourcebinding.karmada.io/permanent-id", "clusterresourcebinding.karmada.io/permanent-id",
		"work.karmada.io/permanent-id",
		"propagationpolicy.karmada.io/permanent-id", "clusterpropagationpolicy.karmada.io/permanent-id",
	}
	markAnnotations = []string{
		templateAnnotation, "isthmus.dev/control-plane", "isthmus.dev/template-uid",
		"isthmus.dev/template-revision", "isthmus.dev/epoch", "isthmus.dev/revision",
	}
)

// keptKinds are not deleted with the workloads, since others keep things in
// them or data would go with them: they only lose their marks.
var keptKinds = []schema.GroupResource{
	{Resource: "namespaces"},
	{Resource: "persistentvolumes"},
	{Resource: "persistentvolumeclaims"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
}

// derivedKinds are made by the member's own controllers out of other objects.
var derivedKinds = []schema.GroupResource{
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
	{Resource: "endpoints"},
	{Group: "discovery.k8s.io", Resource: "endpointslices"},
	{Group: "coordination.k8s.io", Resource: "leases"},
	{Group: "metrics.k8s.io", Resource: "pods"},
}

// kind is a resource of a member that can be listed.
type kind struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	patchable  bool
}

// kinds lists the resources of the member.
func (m *memberClients) kinds(ctx context.Context) ([]kind, error) {
	resources, err := membership.Listable(ctx, m.discovery)
	if err != nil {
		return nil, fmt.Errorf("discovery of the member: %w", err)
	}
	out := make([]kind, len(resources))
	for i, r := range resources {
		out[i] = kind{
			gvr:  schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name},
			kind: r.Kind, namespaced: r.Namespaced, patchable: slices.Contains(r.Verbs, "patch"),
		}
	}
	return out, nil
}

// tally counts what letGo did.
type tally struct{ released, deleted int }

// letGo takes the marks off every managed copy, or deletes it. Only copies
// whose mark is about themselves are touched: a clone that inherited the mark
// is somebody else's.
func (m *memberClients) letGo(ctx context.Context, del bool) (tally, error) {
	kinds, err := m.kinds(ctx)
	if err != nil {
		return tally{}, err
	}
	var done tally
	var errs []error
	for _, k := range kinds {
		if !k.patchable || slices.Contains(derivedKinds, k.gvr.GroupResource()) {
			continue
		}
		opts := metav1.ListOptions{LabelSelector: managedLabel + "=true", Limit: listPage}
		for {
			page, err := m.metadata.Resource(k.gvr).List(ctx, opts)
			if err != nil {
				if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
					errs = append(errs, fmt.Errorf("%s: %w", k.gvr.Resource, err))
				}
				// What we may not list we cannot have written.
				break
			}
			for i := range page.Items {
				errs = append(errs, m.letGoOne(ctx, k, &page.Items[i].ObjectMeta, del, &done))
			}
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
		}
	}
	return done, errors.Join(errs...)
}

func (m *memberClients) letGoOne(ctx context.Context, k kind, obj *metav1.ObjectMeta, del bool, done *tally) error {
	if !markedAs(obj, k) {
		return nil
	}
	var api metadata.ResourceInterface = m.metadata.Resource(k.gvr)
	if k.namespaced {
		api = m.metadata.Resource(k.gvr).Namespace(obj.Namespace)
	}
	what := fmt.Sprintf("%s %s/%s", k.kind, obj.Namespace, obj.Name)
	if del && !slices.Contains(keptKinds, k.gvr.GroupResource()) {
		policy := metav1.DeletePropagationBackground
		err := api.Delete(ctx, obj.Name, metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &obj.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", what, err)
		}
		done.deleted++
		return nil
	}
	patch, err := unmarkPatch(obj.UID)
	if err != nil {
		return err
	}
	_, err = api.Patch(ctx, obj.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the marks off %s: %w", what, err)
	}
	done.released++
	return nil
}

// markedAs reports whether an object's mark is about itself:
// isthmus.dev/template ends in KIND/NAMESPACE/NAME.
func markedAs(obj *metav1.ObjectMeta, k kind) bool {
	if obj.Labels[managedLabel] != "true" {
		return false
	}
	group := k.gvr.Group
	if group == "" {
		group = "core"
	}
	mark := obj.Annotations[templateAnnotation]
	return strings.HasPrefix(mark, group+"/") &&
		strings.HasSuffix(mark, "/"+k.kind+"/"+obj.Namespace+"/"+obj.Name)
}

// unmarkPatch removes all marks from one object, and from no other of its
// name.
func unmarkPatch(uid types.UID) ([]byte, error) {
	nulls := func(keys []string) map[string]any {
		out := map[string]any{}
		for _, k := range keys {
			out[k] = nil
		}
		return out
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "labels": nulls(markLabels), "annotations": nulls(markAnnotations),
	}})
	if err != nil {
		return nil, fmt.Errorf("patch of marks: %w", err)
	}
	return patch, nil
}

// removeIdentities deletes our identities: the namespace, if we made it and
// nothing of others is in it, and the object that owns the rest.
func (m *memberClients) removeIdentities(ctx context.Context, admin bool) error {
	root, err := m.kube.RbacV1().ClusterRoles().Get(ctx, membershipRole, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		root = nil
	case err != nil:
		return fmt.Errorf("ClusterRole %s: %w", membershipRole, err)
	case root.Labels[v1alpha1.IdentityLabel] == "":
		return fmt.Errorf("ClusterRole %s: %w", membershipRole, ErrForeignObject)
	}
	if err := m.removeFence(ctx); err != nil {
		return err
	}
	if err := m.removeNamespace(ctx); err != nil {
		return err
	}
	if root != nil {
		err := m.kube.RbacV1().ClusterRoles().Delete(ctx, membershipRole, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &root.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("ClusterRole %s: %w", membershipRole, err)
		}
	}
	if admin {
		return m.removeByHand(ctx)
	}
	return m.awaitLocked(ctx)
}

// removeFence deletes the mark of the control plane that has written to the
// member, so that another one may.
func (m *memberClients) removeFence(ctx context.Context) error {
	err := m.kube.CoreV1().ConfigMaps(v1alpha1.MemberNamespace).Delete(ctx, v1alpha1.FenceName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ConfigMap %s: %w", v1alpha1.FenceName, err)
	}
	return nil
}

// removeByHand deletes what the garbage collector would, for an administrator.
func (m *memberClients) removeByHand(ctx context.Context) error {
	var errs []error
	for _, obj := range MemberObjects(Rights{}) {
		meta, ok := obj.(metav1.Object)
		if !ok {
			continue
		}
		gvr := resources[obj.GetObjectKind().GroupVersionKind().Kind]
		var api metadata.ResourceInterface = m.metadata.Resource(gvr)
		if meta.GetNamespace() != "" {
			api = m.metadata.Resource(gvr).Namespace(meta.GetNamespace())
		}
		current, err := api.Get(ctx, meta.GetName(), metav1.GetOptions{})
		if err == nil && current.Labels[v1alpha1.IdentityLabel] != "" {
			err = api.Delete(ctx, meta.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &current.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s %s: %w", gvr.Resource, meta.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// awaitLocked waits until the member no longer lets us in: then the garbage
// collector has done its work.
func (m *memberClients) awaitLocked(ctx context.Context) error {
	for {
		_, err := m.kube.CoreV1().ServiceAccounts(v1alpha1.MemberNamespace).Get(ctx, v1alpha1.ApplyServiceAccount, metav1.GetOptions{})
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the member's garbage collector has not removed our identities yet (kube-controller-manager does it once it runs): %w", ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// removeNamespace deletes our namespace when we made it and it holds nothing
// of others.
func (m *memberClients) removeNamespace(ctx context.Context) error {
	ns, err := m.kube.CoreV1().Namespaces().Get(ctx, v1alpha1.MemberNamespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", v1alpha1.MemberNamespace, err)
	}
	if ns.Labels[v1alpha1.IdentityLabel] == "" || ns.DeletionTimestamp != nil {
		return nil
	}
	foreign, err := m.foreignIn(ctx, v1alpha1.MemberNamespace)
	if err != nil {
		return err
	}
	if foreign {
		return nil
	}
	err = m.kube.CoreV1().Namespaces().Delete(ctx, v1alpha1.MemberNamespace, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %s: %w", v1alpha1.MemberNamespace, err)
	}
	return nil
}

// foreignIn reports whether a namespace holds anything that is not ours. What
// cannot be listed counts as foreign.
func (m *memberClients) foreignIn(ctx context.Context, namespace string) (bool, error) {
	kinds, err := m.kinds(ctx)
	if err != nil {
		return true, err
	}
	for _, k := range kinds {
		if !k.namespaced || slices.Contains(derivedKinds, k.gvr.GroupResource()) {
			continue
		}
		list, err := m.metadata.Resource(k.gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			continue
		case apierrors.IsForbidden(err):
			return true, nil
		case err != nil:
			return true, fmt.Errorf("%s in %s: %w", k.gvr.Resource, namespace, err)
		}
		for i := range list.Items {
			if !oursIn(&list.Items[i].ObjectMeta, k) {
				return true, nil
			}
		}
	}
	return false, nil
}

// oursIn reports whether an object in our own namespace of a member is ours or
// Kubernetes' own.
func oursIn(obj *metav1.ObjectMeta, k kind) bool {
	switch {
	case obj.Labels[v1alpha1.IdentityLabel] != "", obj.Labels[managedLabel] == "true":
		return true
	case k.kind == "ConfigMap" && obj.Name == "kube-root-ca.crt", k.kind == "ServiceAccount" && obj.Name == "default":
		return true
	}
	// State of the engine, such as its fence.
	return k.kind == "ConfigMap" && strings.HasPrefix(obj.Name, "isthmus-")
}
