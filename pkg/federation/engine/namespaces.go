package engine

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// privateKinds are looked through for objects that somebody made in the member
// before a namespace is deleted there. Pods are not among them: those that
// belong to the namespace's users go with it, as on one cluster.
var privateKinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
}

// foreignContents names an object of the namespace that is neither managed nor
// made by the cluster itself; "" when there is none.
func (m *member) foreignContents(ctx context.Context, namespace string) (string, error) {
	for _, gvr := range privateKinds {
		opts := metav1.ListOptions{LabelSelector: marks.Managed + "!=true", Limit: 100}
		for {
			list, err := m.client.Resource(gvr).Namespace(namespace).List(ctx, opts)
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return "", fmt.Errorf("contents of namespace %s in %s: %w", namespace, m.name, err)
			}
			for i := range list.Items {
				if o := &list.Items[i]; !ownToCluster(gvr.Resource, o) {
					return gvr.Resource + "/" + o.GetName(), nil
				}
			}
			if opts.Continue = list.GetContinue(); opts.Continue == "" {
				break
			}
		}
	}
	return "", nil
}

// removeContents deletes the copies in a namespace that stays: its template is
// gone, and with it, as the control plane has made sure, all templates in it.
func (m *member) removeContents(ctx context.Context, namespace string) error {
	m.mu.RLock()
	watches := maps.Clone(m.watches)
	m.mu.RUnlock()
	for gk, w := range watches {
		k := m.engine.kindOf(gk)
		if k == nil || !k.namespaced {
			continue
		}
		copies, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
		if err != nil {
			return fmt.Errorf("copies of %s: %w", gk.Kind, err)
		}
		for _, obj := range copies {
			c, ok := obj.(*copyRecord)
			if !ok || !c.owned || c.held {
				continue
			}
			err := m.client.Resource(k.gvr()).Namespace(namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
				PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: metav1.NewUIDPreconditions(string(c.UID)),
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete %s %s/%s in %s: %w", gk.Kind, namespace, c.Name, m.name, err)
			}
		}
	}
	return nil
}

// ownToCluster: made by the cluster's own controllers for every namespace, or
// on behalf of another object.
func ownToCluster(resource string, o *unstructured.Unstructured) bool {
	if len(o.GetOwnerReferences()) > 0 || o.GetDeletionTimestamp() != nil {
		return true
	}
	switch resource {
	case "configmaps":
		return o.GetName() == "kube-root-ca.crt"
	case "serviceaccounts":
		return o.GetName() == "default"
	case "secrets":
		typ, _, _ := unstructured.NestedString(o.Object, "type")
		return typ == "kubernetes.io/service-account-token"
	}
	return false
}
