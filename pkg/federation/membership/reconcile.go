package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func clusterList(clusters client.Clusters) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return clusters.List(ctx, opts)
	}
}

// reconcile brings link, Cluster and Directory of one member together.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	cluster, ok := c.cluster(name)
	if !ok {
		c.dropLink(name)
		c.roster.remove(name)
		return nil
	}
	l := c.ensureLink(cluster)
	errs := []error{l.configure(c.desiredOf(cluster))}
	l.start(ctx)
	if c.opts.Leads() {
		c.renewTokens(ctx, l, cluster)
		updated, err := c.recordMetadata(ctx, cluster, l)
		if err != nil {
			errs = append(errs, err)
		} else {
			cluster = updated
			errs = append(errs, c.recordStatus(ctx, cluster, l))
		}
	}
	if m, ok := memberOf(cluster, l); ok {
		c.roster.set(m)
	}
	return errors.Join(errs...)
}

// desiredOf reads the ways to a member out of its Cluster and Secrets.
func (c *Controller) desiredOf(cluster *v1alpha1.Cluster) desired {
	want := desired{uid: types.UID(cluster.Spec.ID)}
	ref := cluster.Spec.SecretRef
	if ref == nil {
		want.problem = fmt.Errorf("%w: spec.secretRef is not set", ErrNoCredentials)
		return want
	}
	if want.read, want.problem = c.wayBy(cluster, ref.Namespace, ref.Name); want.problem != nil {
		return want
	}
	if _, ok := c.secret(cluster.Name + v1alpha1.ApplySecretSuffix); ok {
		if want.apply, want.problem = c.wayBy(cluster, v1alpha1.CredentialsNamespace, cluster.Name+v1alpha1.ApplySecretSuffix); want.problem != nil {
			// Applying with the other identity would hide the mistake.
			want.read = nil
			return want
		}
	}
	if ref := cluster.Spec.ImpersonatorSecretRef; ref != nil {
		want.impersonate, want.impersonateProblem = c.wayBy(cluster, ref.Namespace, ref.Name)
	}
	return want
}

func (c *Controller) wayBy(cluster *v1alpha1.Cluster, namespace, name string) (*way, error) {
	if namespace != v1alpha1.CredentialsNamespace {
		return nil, fmt.Errorf("%w: Secret %s/%s is outside the namespace %s", ErrNoCredentials, namespace, name, v1alpha1.CredentialsNamespace)
	}
	secret, ok := c.secret(name)
	if !ok {
		return nil, fmt.Errorf("%w: there is no Secret %s/%s", ErrNoCredentials, namespace, name)
	}
	if of := secret.Labels[v1alpha1.MemberLabel]; of != "" && of != cluster.Name {
		return nil, fmt.Errorf("%w: Secret %s/%s belongs to the member %s", ErrNoCredentials, namespace, name, excerpt([]byte(of)))
	}
	access, token, err := AccessOf(cluster, secret)
	if err != nil {
		return nil, err
	}
	return &way{access: access, token: token}, nil
}

// foreign says who else has an identity, before the named Cluster has it.
func (c *Controller) foreign(name string, uid types.UID) string {
	c.mu.Lock()
	self := c.selfUID
	c.mu.Unlock()
	if self != "" && uid == self {
		return "the control plane itself"
	}
	mine, ok := c.cluster(name)
	for _, other := range c.listClusters() {
		if other.Name == name || types.UID(other.Spec.ID) != uid {
			continue
		}
		if !ok || mine.Spec.ID != other.Spec.ID || precedes(other, mine) {
			return fmt.Sprintf("joined as %q", other.Name)
		}
	}
	return ""
}

// precedes orders Clusters by when they joined.
func precedes(a, b *v1alpha1.Cluster) bool {
	return cmp.Or(
		cmp.Compare(orderOf(a), orderOf(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	) < 0
}

// orderOf is the persisted join order; a Cluster without one comes last.
func orderOf(cluster *v1alpha1.Cluster) int64 {
	n, err := strconv.ParseInt(cluster.Annotations[v1alpha1.JoinOrderAnnotation], 10, 64)
	if err != nil || n < 0 {
		return 1<<63 - 1
	}
	return n
}

func hasOrder(cluster *v1alpha1.Cluster) bool { return orderOf(cluster) != 1<<63-1 }

// NextOrder is the join order for one more Cluster.
func NextOrder(clusters []v1alpha1.Cluster) int64 {
	var last int64
	for i := range clusters {
		if hasOrder(&clusters[i]) {
			last = max(last, orderOf(&clusters[i]))
		}
	}
	return last + 1
}

// recordMetadata writes what is decided once in the life of a member: its
// order, its identity, and that it was synced.
func (c *Controller) recordMetadata(ctx context.Context, cluster *v1alpha1.Cluster, l *link) (*v1alpha1.Cluster, error) {
	annotations := map[string]string{}
	if !hasOrder(cluster) {
		c.orderMu.Lock()
		defer c.orderMu.Unlock()
		c.lastOrder = max(c.lastOrder, c.highestOrder()) + 1
		annotations[v1alpha1.JoinOrderAnnotation] = strconv.FormatInt(c.lastOrder, 10)
	}
	c.mu.Lock()
	s, spoken := c.syncs[cluster.Name]
	c.mu.Unlock()
	if spoken && s.synced && cluster.Annotations[v1alpha1.EverSyncedAnnotation] != "true" {
		annotations[v1alpha1.EverSyncedAnnotation] = "true"
	}
	metadata := map[string]any{"resourceVersion": cluster.ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	uid := l.firstIdentity()
	if uid != "" && cluster.Spec.ID == "" && c.foreign(cluster.Name, uid) == "" {
		patch["spec"] = map[string]any{"id": string(uid)}
	} else if len(annotations) == 0 {
		return cluster, nil
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch of Cluster %s: %w", cluster.Name, err)
	}
	updated, err := c.clusters.Patch(ctx, cluster.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "isthmus-membership"})
	if err != nil {
		return nil, fmt.Errorf("recording identity and order of Cluster %s: %w", cluster.Name, ignoreGone(err))
	}
	return updated, nil
}

func (c *Controller) highestOrder() int64 {
	var highest int64
	for _, cluster := range c.listClusters() {
		if hasOrder(cluster) {
			highest = max(highest, orderOf(cluster))
		}
	}
	return highest
}

// ignoreGone turns "not found" into a conflict: the informer will tell.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewConflict(v1alpha1.ClusterResource.GroupResource(), "", err)
	}
	return err
}

// recordStatus writes the status when it differs.
func (c *Controller) recordStatus(ctx context.Context, cluster *v1alpha1.Cluster, l *link) error {
	c.mu.Lock()
	s, spoken := c.syncs[cluster.Name]
	c.mu.Unlock()
	f := l.findings()
	f.generation = cluster.Generation
	if spoken {
		f.sync = &s
	}
	f.credentials = append(f.credentials, c.credentialsOf(cluster, l)...)
	status := l.statusOf(cluster.Status)
	status.Conditions = conditionsOf(cluster.Status.Conditions, f, time.Now())
	if equality.Semantic.DeepEqual(status, cluster.Status) {
		return nil
	}
	updated := cluster.DeepCopy()
	updated.Status = status
	if _, err := c.clusters.UpdateStatus(ctx, updated, metav1.UpdateOptions{FieldManager: "isthmus-membership"}); err != nil {
		return fmt.Errorf("status of Cluster %s: %w", cluster.Name, ignoreGone(err))
	}
	klog.FromContext(ctx).V(4).Info("Wrote Cluster status", "cluster", cluster.Name)
	return nil
}

// firstIdentity is the UID that the member showed.
func (l *link) firstIdentity() types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seenUID
}

// statusOf is the status after what the link has found, conditions aside.
func (l *link) statusOf(before v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := *before.DeepCopy()
	if l.found != nil {
		after.KubernetesVersion = l.found.version
		if !l.found.finding.empty {
			after.APIEnablements = l.found.apis
		}
	}
	if l.summary != nil {
		nodes, resources := l.summary.Nodes, l.summary.Resources
		after.NodeSummary, after.ResourceSummary = &nodes, &resources
	}
	return after
}

func (l *link) findings() findings {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := findings{health: l.health}
	if l.found != nil {
		finding := l.found.finding
		f.apis = &finding
	}
	if l.applySeen.verdict == VerdictUnauthorized || l.applySeen.verdict == VerdictForbidden {
		f.applyVerdict = l.applySeen.verdict
	}
	f.impersonateProblem = l.want.impersonateProblem
	return f
}

// memberOf is the Directory's view; ok is false while the Cluster has no join
// order, since the order of a member never changes.
func memberOf(cluster *v1alpha1.Cluster, l *link) (Member, bool) {
	if !hasOrder(cluster) {
		return Member{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := Member{
		Name: cluster.Name, UID: types.UID(cluster.Spec.ID), Order: orderOf(cluster),
		Ready: l.health.Ready, Reason: l.health.Reason, Message: l.health.Message,
		Reachable:  l.health.Probed && l.health.Last.Reachable(),
		EverSynced: cluster.Annotations[v1alpha1.EverSyncedAnnotation] == "true",
		Absent:     cluster.Annotations[v1alpha1.AbsentAnnotation] == "true",
		Labels:     cluster.Labels, Annotations: cluster.Annotations,
		Provider: cluster.Spec.Provider, Region: cluster.Spec.Region,
		Zone: cluster.Spec.Zone, Zones: cluster.Spec.Zones, Taints: cluster.Spec.Taints,
		Version: cluster.Status.KubernetesVersion,
		Nodes:   cluster.Status.NodeSummary, Resources: cluster.Status.ResourceSummary,
		APIEnablements: cluster.Status.APIEnablements,
	}
	if !m.Ready {
		m.NotReadySince = l.health.Since
	}
	if l.read != nil {
		m.Read, m.Apply = l.read.config, l.read.config
	}
	if l.apply != nil {
		m.Apply = l.apply.config
	}
	if l.impersonate != nil {
		m.Impersonate = l.impersonate.config
	}
	m.ForUsers = cluster.Spec.ImpersonatorSecretRef != nil
	return m, true
}
