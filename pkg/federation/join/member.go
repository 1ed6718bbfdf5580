package join

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Errors of a join or unjoin.
var (
	ErrInvalidName    = errors.New("the name of the cluster is not valid")
	ErrUnreachable    = errors.New("the member cannot be reached")
	ErrControlPlane   = errors.New("the control plane cannot be used")
	ErrSelf           = errors.New("the control plane cannot join itself")
	ErrAlreadyJoined  = errors.New("the cluster has already joined")
	ErrOtherCluster   = errors.New("another cluster has this name")
	ErrForeignObject  = errors.New("an object of that name exists and was not made by a join")
	ErrMissingRights  = errors.New("the kubeconfig has not enough rights in the member")
	ErrNotReady       = errors.New("the cluster did not become Ready in time")
	ErrMemberLeftover = errors.New("the member could not be cleaned")
)

var nameShape = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// memberClients are the clients of one member with one identity.
type memberClients struct {
	config    *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterfaceWithContext
}

func clientsFor(config *rest.Config, timeout time.Duration) (*memberClients, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = -1, 0
	own.Timeout = timeout
	own.WarningHandler = rest.NoWarnings{}
	httpClient, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("HTTP client: %w", err)
	}
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	m := &memberClients{config: own}
	kube, err := kubernetes.NewForConfigAndClient(own, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	m.kube = kube
	m.discovery = kube.DiscoveryClient
	if m.dynamic, err = dynamic.NewForConfigAndClient(own, httpClient); err != nil {
		return nil, fmt.Errorf("dynamic client: %w", err)
	}
	if m.metadata, err = metadata.NewForConfigAndClient(own, httpClient); err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	return m, nil
}

// identify returns version and identity of a cluster.
func (m *memberClients) identify(ctx context.Context) (version string, uid types.UID, err error) {
	info, err := m.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", m.config.Host, err)
	}
	ns, err := m.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("namespace kube-system of %s: %w", m.config.Host, err)
	}
	return info.GitVersion, ns.UID, nil
}

// resources are the kinds that a join writes.
var resources = map[string]schema.GroupVersionResource{
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
}

// ensure writes the objects of ours. A second time it changes nothing.
func (m *memberClients) ensure(ctx context.Context, r Rights) error {
	if err := m.ensureNamespace(ctx); err != nil {
		return err
	}
	root, err := m.apply(ctx, rootRole(r), nil)
	if err != nil {
		return err
	}
	owner := []any{map[string]any{
		"apiVersion": root.GetAPIVersion(), "kind": root.GetKind(),
		"name": root.GetName(), "uid": string(root.GetUID()),
	}}
	for _, obj := range MemberObjects(r) {
		if _, err := m.apply(ctx, obj, owner); err != nil {
			return err
		}
	}
	return nil
}

// ensureNamespace makes our namespace unless there is one: one that somebody
// else made keeps its labels, and so is never deleted by us.
func (m *memberClients) ensureNamespace(ctx context.Context) error {
	ns, err := m.kube.CoreV1().Namespaces().Get(ctx, v1alpha1.MemberNamespace, metav1.GetOptions{})
	switch {
	case err == nil && ns.Status.Phase == corev1.NamespaceTerminating:
		return fmt.Errorf("namespace %s in the member is being deleted: run the join again when it is gone", v1alpha1.MemberNamespace)
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return withRights(fmt.Errorf("namespace %s in the member: %w", v1alpha1.MemberNamespace, err))
	}
	_, err = m.kube.CoreV1().Namespaces().Create(ctx, memberNamespace(), metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return withRights(fmt.Errorf("creating namespace %s in the member: %w", v1alpha1.MemberNamespace, err))
	}
	return nil
}

// apply writes one object by server-side apply, unless there is one of that
// name that is not ours.
func (m *memberClients) apply(ctx context.Context, obj runtime.Object, owner []any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("%T: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if owner != nil {
		if err := unstructured.SetNestedSlice(u.Object, owner, "metadata", "ownerReferences"); err != nil {
			return nil, fmt.Errorf("owner of %s: %w", u.GetName(), err)
		}
	}
	what := fmt.Sprintf("%s %s in the member", u.GetKind(), u.GetName())
	api := m.resource(u)
	current, err := api.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, withRights(fmt.Errorf("%s: %w", what, err))
	case current.GetLabels()[v1alpha1.IdentityLabel] == "":
		return nil, fmt.Errorf("%s: %w: remove or rename it, or give it the label %s", what, ErrForeignObject, v1alpha1.IdentityLabel)
	}
	applied, err := api.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return nil, withRights(fmt.Errorf("%s: %w", what, err))
	}
	return applied, nil
}

func (m *memberClients) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	api := m.dynamic.Resource(resources[u.GetKind()])
	if ns := u.GetNamespace(); ns != "" {
		return api.Namespace(ns)
	}
	return api
}

// withRights explains a refusal.
func withRights(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("%w (cluster-admin is needed once, to create our own identities; it is not kept): %w", ErrMissingRights, err)
	}
	return err
}
