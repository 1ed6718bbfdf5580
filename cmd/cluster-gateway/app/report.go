package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/client"
	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// reporter is membership to the fleet, but for CacheSynced: the leading
// multicluster-apiserver writes all other conditions, and only this process
// knows how far its cache has got.
type reporter struct {
	*membership.Controller
	clusters client.Clusters
	last     map[string]report // used by the fleet's one reporting goroutine
}

type report struct {
	synced  bool
	message string
}

const reportTimeout = 5 * time.Second

func newReporter(m *membership.Controller, endpoint *rest.Config) (*reporter, error) {
	clusters, err := client.NewForConfig(endpoint)
	if err != nil {
		return nil, fmt.Errorf("client of Clusters: %w", err)
	}
	return &reporter{Controller: m, clusters: clusters, last: map[string]report{}}, nil
}

// SetCacheSynced writes the condition when it has changed. A failed write is
// tried again at the next report.
func (r *reporter) SetCacheSynced(name string, synced bool, message string) {
	now := report{synced, message}
	if r.last[name] == now {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return r.write(ctx, name, now) })
	if err != nil {
		klog.ErrorS(err, "CacheSynced is not reported, will retry", "cluster", name)
		return
	}
	r.last[name] = now
}

func (r *reporter) write(ctx context.Context, name string, now report) error {
	cluster, err := r.clusters.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if now.synced && cluster.Annotations[v1alpha1.EverSyncedAnnotation] != "true" {
		if cluster.Annotations == nil {
			cluster.Annotations = map[string]string{}
		}
		cluster.Annotations[v1alpha1.EverSyncedAnnotation] = "true"
		if cluster, err = r.clusters.Update(ctx, cluster, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	c := metav1.Condition{
		Type: v1alpha1.ClusterConditionCacheSynced, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonNotSynced, Message: now.message,
	}
	if now.synced {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonSynced
	}
	if !meta.SetStatusCondition(&cluster.Status.Conditions, c) {
		return nil
	}
	_, err = r.clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{})
	return err
}
