package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// grantRetry is the pause after an attempt to extend our rights that failed.
const grantRetry = 15 * time.Second

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// CustomRules are the rights of the apply identity on custom resources, by
// group: RBAC cannot say "every group but", so the groups are named.
func CustomRules(groups []string) []rbacv1.PolicyRule {
	sorted := slices.Compact(slices.Sorted(slices.Values(groups)))
	rules := make([]rbacv1.PolicyRule, 0, len(sorted))
	for _, g := range sorted {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{g}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		})
	}
	return rules
}

// missingGroups are the groups that no rule of a role names.
func missingGroups(role *rbacv1.ClusterRole, groups []string) []string {
	var missing []string
	for _, g := range groups {
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, g) }) {
			missing = append(missing, g)
		}
	}
	return missing
}

// watchGroups follows the CustomResourceDefinitions of the control plane.
func (c *Controller) watchGroups(ctx context.Context) error {
	factory := metadatainformer.NewSharedInformerFactory(c.metadata, 0)
	informer := factory.ForResource(crdResource).Informer()
	recount := func(any) {
		groups := FederatedGroups(namesIn(informer.GetStore()))
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(groups, c.groups) {
			c.groups = groups
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: recount})
	if err != nil {
		return fmt.Errorf("watch of CustomResourceDefinitions: %w", err)
	}
	factory.Start(ctx.Done())
	go func() {
		<-ctx.Done()
		factory.Shutdown()
	}()
	return nil
}

func namesIn(store cache.Store) []string {
	var names []string
	for _, obj := range store.List() {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			names = append(names, m.Name)
		}
	}
	return names
}

func (c *Controller) federatedGroups() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups
}

// grantGroups lets the apply identity of a member write the custom resources
// of the control plane's groups, by its right to extend one role of its own.
// A member that joined with fixed rights has no such right: that is no error.
func grantGroups(ctx context.Context, config *rest.Config, groups []string) error {
	httpClient, err := boundedClient(config)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("client of the member: %w", err)
	}
	roles := client.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, v1alpha1.CustomRole, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ClusterRole %s: %w", v1alpha1.CustomRole, err)
	}
	missing := missingGroups(role, groups)
	if len(missing) == 0 {
		return nil
	}
	role.Rules = append(role.Rules, CustomRules(missing)...)
	_, err = roles.Update(ctx, role, metav1.UpdateOptions{FieldManager: "isthmus-membership"})
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).Info("The apply identity may not write new custom resources: join again, or without --fixed-rights", "groups", missing)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ClusterRole %s: %w", v1alpha1.CustomRole, err)
	}
	klog.FromContext(ctx).Info("Extended the rights of the apply identity", "groups", missing)
	return nil
}

// extend grants what is new since the last time.
func (l *link) extend(ctx context.Context) {
	groups := l.groups()
	l.mu.Lock()
	apply, done, next := l.apply, l.granted, l.grantNext
	l.mu.Unlock()
	if apply == nil || len(groups) == 0 || slices.Equal(groups, done) || time.Now().Before(next) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	err := grantGroups(ctx, apply.config, groups)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.grantNext = time.Now().Add(grantRetry)
		klog.FromContext(ctx).V(2).Info("Rights of the apply identity not extended, will retry", "err", err)
		return
	}
	l.granted = groups
}
