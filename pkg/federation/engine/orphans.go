package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// OrphansName is the ConfigMap in the control plane that lists each cluster's
// orphans: copies with our marks whose template is not there, and of which
// nothing records that it was deleted.
const OrphansName = "isthmus-orphans"

// OrphanOrdersName is the ConfigMap of what operators want done with them.
const OrphanOrdersName = "isthmus-orphan-orders"

// Orphans of one cluster.
type Orphans struct {
	Count int         `json:"count"`
	At    metav1.Time `json:"at"`
	// Keys are their marks, the first few hundred.
	Keys []string `json:"keys"`
}

// What an operator may want done with orphans.
const (
	OrphanDelete  = "delete"
	OrphanRelease = "release"
)

// OrphanOrder is what an operator wants done.
type OrphanOrder struct {
	Cluster string      `json:"cluster"`
	Action  string      `json:"action"`
	Keys    []string    `json:"keys"`
	By      string      `json:"by,omitempty"`
	At      metav1.Time `json:"at"`
}

const (
	orphanPause  = 10 * time.Second
	orphanSweep  = 10 * time.Minute
	listedAtMost = 500
)

// watchOrphans compares what the members hold with the templates, again and
// again, and carries out orders.
func (e *Engine) watchOrphans(ctx context.Context) {
	seen, shown := map[string]map[string]bool{}, map[string]string{}
	rare := map[string][]marks.Key{}
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(orphanPause):
		}
		if time.Since(swept) > orphanSweep {
			swept = time.Now()
			for _, m := range e.memberList() {
				rare[m.name] = m.sweep(ctx)
			}
		}
		for _, m := range e.memberList() {
			held.WithLabelValues(m.name).Set(float64(m.countHeld()))
			if m.client == nil || !m.info().Ready {
				continue
			}
			now := m.orphans(rare[m.name])
			before := seen[m.name]
			seen[m.name] = now
			// Two looks: a template that was just deleted is no orphanage.
			lasting := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(k string) bool { return !before[k] })
			e.showOrphans(ctx, m.name, lasting, shown)
		}
		if err := e.obeyOrphanOrders(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Orders about orphans cannot be carried out")
		}
	}
}

// orphans among the copies that are watched, and among those found before.
func (m *member) orphans(others []marks.Key) map[string]bool {
	m.mu.RLock()
	watches := maps.Clone(m.watches)
	m.mu.RUnlock()
	out := map[string]bool{}
	for gk, w := range watches {
		k := m.engine.kindOf(gk)
		if k == nil || !k.informer.HasSynced() || !w.informer.HasSynced() {
			continue
		}
		for _, obj := range w.informer.GetStore().List() {
			c, ok := obj.(*copyRecord)
			if !ok || !c.owned || c.DeletionTimestamp != nil {
				continue
			}
			key := marks.Key{GroupVersionKind: k.GroupVersionKind, Namespace: c.Namespace, Name: c.Name}
			if m.engine.orphaned(key, c.templateUID) {
				out[key.String()] = true
			}
		}
	}
	for _, key := range others {
		if m.watched(key.GroupKind()) {
			continue // the watch knows better
		}
		if m.engine.orphaned(key, "") {
			out[key.String()] = true
		}
	}
	return out
}

func (m *member) watched(gk schema.GroupKind) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.watches[gk] != nil
}

// orphaned: no template, and no record of one that was deleted.
func (e *Engine) orphaned(key marks.Key, uid types.UID) bool {
	if e.template(key) != nil {
		return false
	}
	b := e.bindings.get(key)
	return b == nil || b.Annotations[deletedTemplate] == "" || uid != "" && b.Annotations[deletedTemplate] != string(uid)
}

// sweep lists the copies of kinds that are not watched, because no template of
// them exists.
func (m *member) sweep(ctx context.Context) []marks.Key {
	if m.client == nil || !m.info().Ready {
		return nil
	}
	m.engine.mu.RLock()
	kinds := slices.Collect(maps.Values(m.engine.kinds))
	m.engine.mu.RUnlock()
	var out []marks.Key
	for _, k := range kinds {
		if m.watched(k.GroupKind()) {
			continue
		}
		listCtx, cancel := context.WithTimeout(ctx, m.engine.cfg.RequestTimeout)
		list, err := m.client.Resource(k.gvr()).List(listCtx, metav1.ListOptions{LabelSelector: marks.ManagedSelector, Limit: listedAtMost})
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Copies cannot be listed", "kind", k.Kind, "cluster", m.name, "err", err)
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			key := marks.Key{GroupVersionKind: k.GroupVersionKind, Namespace: o.GetNamespace(), Name: o.GetName()}
			if marks.Owned(m.engine.id, key, o.GetLabels(), o.GetAnnotations()) {
				out = append(out, key)
			}
		}
	}
	return out
}

// showOrphans lists them where `orphans` looks, and tells of new ones.
func (e *Engine) showOrphans(ctx context.Context, cluster string, keys []string, shown map[string]string) {
	orphaned.WithLabelValues(cluster).Set(float64(len(keys)))
	text := strings.Join(keys, "\n")
	was, known := shown[cluster]
	if known && was == text {
		return
	}
	if !known && len(keys) == 0 && !e.listsOrphans(cluster) {
		shown[cluster] = text
		return
	}
	e.storeFinding(ctx, OrphansName, cluster, Orphans{Count: len(keys), At: metav1.Now(), Keys: keys[:min(len(keys), listedAtMost)]})
	shown[cluster] = text
	if len(keys) > 0 {
		e.clusterEvent(ctx, cluster, corev1.EventTypeWarning, "Orphans", fmt.Sprintf(
			"%d copies have no template and stay (%s ...), see: multicluster-apiserver orphans", len(keys), keys[0]))
	}
}

// listsOrphans: an earlier leader has listed some.
func (e *Engine) listsOrphans(cluster string) bool {
	t := e.template(stateKey(OrphansName))
	return t != nil && strings.Contains(string(t.raw), `"`+cluster+`"`)
}

// stateKey names a ConfigMap of ours in the control plane.
func stateKey(name string) marks.Key {
	return marks.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: clusterv1alpha1.CredentialsNamespace, Name: name}
}

func (e *Engine) obeyOrphanOrders(ctx context.Context) error {
	t := e.template(stateKey(OrphanOrdersName))
	if t == nil {
		return nil
	}
	u, err := t.decode()
	if err != nil {
		return err
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", OrphanOrdersName, err)
	}
	for id, text := range data {
		var o OrphanOrder
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			klog.FromContext(ctx).Error(err, "An order about orphans cannot be read", "order", text)
		} else if err := e.obeyOrphanOrder(ctx, o, revisionOf(t.ResourceVersion)); err != nil {
			klog.FromContext(ctx).Error(err, "An order about orphans is not carried out yet", "cluster", o.Cluster)
			continue
		}
		if err := e.mergeData(ctx, OrphanOrdersName, map[string]any{id: nil}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) obeyOrphanOrder(ctx context.Context, o OrphanOrder, basis uint64) error {
	m := e.member(o.Cluster)
	if m == nil || m.client == nil {
		return fmt.Errorf("there is no cluster %q", o.Cluster)
	}
	if err := m.permit(ctx, basis); err != nil {
		return err
	}
	for _, text := range o.Keys {
		key, err := marks.ParseKey(text)
		if err != nil {
			return err
		}
		if err := m.settleOrphan(ctx, e.canonical(key), o.Action); err != nil {
			return err
		}
	}
	return nil
}

// settleOrphan deletes or releases what is, by a live look, still an orphan.
func (m *member) settleOrphan(ctx context.Context, key marks.Key, action string) error {
	there, err := m.liveCopy(ctx, key)
	if err != nil || there == nil || !there.owned {
		return err
	}
	t, _, err := m.engine.liveTemplate(ctx, key)
	if err != nil {
		return err
	}
	if t.Found {
		return nil
	}
	klog.FromContext(ctx).Info("An operator settles an orphan", "cluster", m.name, "copy", key.String(), "action", action)
	if action != OrphanDelete {
		return m.release(ctx, key, there)
	}
	res, err := m.resource(key)
	if err != nil {
		return err
	}
	err = res.Delete(ctx, key.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: &there.UID, ResourceVersion: &there.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("orphan %s in %s: %w", key, m.name, err)
	}
	return nil
}
