package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// askAgain is when a removal that waits is tried again; an answer is acted on
// at once.
const askAgain = 30 * time.Second

// size sums up the member's copies, in one namespace or in all.
func (m *member) size(namespace string) breaker.Size {
	m.mu.RLock()
	watches := maps.Clone(m.watches)
	m.mu.RUnlock()
	var s breaker.Size
	for gk, w := range watches {
		objs := w.informer.GetStore().List
		if namespace != "" {
			objs = func() []any {
				found, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
				if err != nil {
					return nil
				}
				return found
			}
		}
		for _, obj := range objs() {
			if c, ok := obj.(*copyRecord); ok && c.owned {
				s.Objects++
				s.Replicas += c.weight(gk)
			}
		}
	}
	return s
}

// weight is how many Pods the copy stands for.
func (r *copyRecord) weight(gk schema.GroupKind) int64 {
	var field string
	switch gk {
	case daemonSetKind:
		field = "desiredNumberScheduled"
	case jobKind:
		field = "active"
	default:
		return int64(r.replicas)
	}
	status, err := r.decodeStatus()
	if err != nil {
		return 0
	}
	n, _ := status[field].(int64)
	return n
}

// mayDelete asks the breaker about the deletion of a copy.
func (m *member) mayDelete(ctx context.Context, key marks.Key, t intent.Template, there *copyRecord) (breaker.Verdict, string, error) {
	if there.DeletionTimestamp != nil {
		return breaker.Go, "under way", nil
	}
	r := breaker.Removal{
		Cluster: m.name, Template: key.String(), Class: breaker.Derived,
		Amount: breaker.Amount{Replicas: there.weight(key.GroupKind()), Objects: 1},
		Token:  "delete " + string(there.UID),
		Age:    age(time.Now(), m.engine.template(key), there),
	}
	if !t.Found || t.Deleting {
		r.Class = breaker.Asked
		var err error
		if r.Container, err = m.engine.container(ctx, key); err != nil {
			return breaker.Wait, "", err
		}
	}
	if d := m.engine.decisionOf(key); d != nil && r.Class == breaker.Derived {
		m.engine.describeDecision(key, m.name, d, 0, &r)
	}
	if err := m.weighContents(ctx, key, &r); err != nil {
		return breaker.Wait, "", err
	}
	return m.engine.breaker.ask(ctx, r)
}

// age is how long both have been there, by the clocks of whoever made them, or
// zero where they do not say.
func age(now time.Time, t *template, there *copyRecord) time.Duration {
	if t == nil || there.CreationTimestamp.IsZero() || there.CreationTimestamp.After(now) {
		return 0
	}
	return now.Sub(slices.MinFunc([]time.Time{t.CreationTimestamp.Time, there.CreationTimestamp.Time}, time.Time.Compare))
}

// container names the Namespace or CustomResourceDefinition that is being
// deleted with the template, by a live read: the template's deletion may be
// seen first.
func (e *Engine) container(ctx context.Context, key marks.Key) (string, error) {
	switch key.GroupKind() {
	case namespaceKind:
		return "namespace/" + key.Name, nil
	case crdKind:
		return "crd/" + key.Name, nil
	}
	if w := e.kindOf(key.GroupKind()); w != nil {
		name := w.resource + "." + key.Group
		if e.template(marks.Key{GroupVersionKind: crdKind.WithVersion("v1"), Name: name}) != nil {
			going, err := e.goingOrGone(ctx, crdKind, name)
			if err != nil || going {
				return "crd/" + name, err
			}
		}
	}
	if key.Namespace == "" {
		return "", nil
	}
	going, err := e.goingOrGone(ctx, namespaceKind, key.Namespace)
	if err != nil || !going {
		return "", err
	}
	return "namespace/" + key.Namespace, nil
}

func (e *Engine) goingOrGone(ctx context.Context, gk schema.GroupKind, name string) (bool, error) {
	w := e.kindOf(gk)
	if w == nil {
		return false, fmt.Errorf("%w: kind %s", errStale, gk.Kind)
	}
	u, err := e.client.Resource(w.gvr()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", gk.Kind, name, err)
	}
	return u.GetDeletionTimestamp() != nil, nil
}

// weighContents adds what a container takes along: of a deleted one all copies
// in it, and when its own copy goes, what else the member holds in it.
func (m *member) weighContents(ctx context.Context, key marks.Key, r *breaker.Removal) error {
	if r.Container == "" {
		return nil
	}
	switch key.GroupKind() {
	case namespaceKind:
		pods, err := m.count(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, key.Name)
		if err != nil {
			return err
		}
		r.Replicas, r.Contents = pods, breaker.Amount{Replicas: pods, Objects: 1}
		return nil
	case crdKind:
		objects, err := m.countCustom(ctx, key.Name)
		if err != nil {
			return err
		}
		r.Objects += objects
		r.Contents = r.Amount
		return nil
	}
	for _, other := range m.engine.memberList() {
		var s breaker.Size
		if r.Container == "namespace/"+key.Namespace {
			s = other.size(key.Namespace)
		} else {
			s.Objects = other.countCopies(key.GroupKind())
		}
		r.Contents.Replicas += s.Replicas
		r.Contents.Objects += s.Objects
	}
	return nil
}

func (m *member) countCopies(gk schema.GroupKind) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if w := m.watches[gk]; w != nil {
		return int64(len(w.informer.GetStore().ListKeys()))
	}
	return 0
}

// count asks the member how many objects there are.
func (m *member) count(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (int64, error) {
	list, err := m.client.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("count %s in %s: %w", gvr.Resource, m.name, err)
	}
	n := int64(len(list.Items))
	if left := list.GetRemainingItemCount(); left != nil {
		n += *left
	}
	return n, nil
}

// countCustom counts the objects of a CustomResourceDefinition in the member.
func (m *member) countCustom(ctx context.Context, name string) (int64, error) {
	gvr, err := m.customResource(ctx, name)
	if err != nil {
		return 0, err
	}
	if gvr.Version == "" {
		return 0, nil
	}
	return m.count(ctx, gvr, "")
}

// guardReplicas asks the breaker before a copy shrinks, and returns the number
// that it may have. If it has to wait, the rest of the change is made all the
// same.
func (m *member) guardReplicas(ctx context.Context, key marks.Key, d *decision, want int32, there *copyRecord) (int32, error) {
	if there == nil || !there.owned || there.replicas <= want {
		m.waits(key, "")
		return want, nil
	}
	var stays string
	for _, keeps := range shrinkSteps(d, there.replicas, want, m.engine.elsewhere(key, m.name, d)) {
		removal := m.shrinking(key, d, keeps, there)
		verdict, why, err := m.engine.breaker.ask(ctx, removal)
		if err != nil {
			return there.replicas, err
		}
		if verdict == breaker.Go {
			m.waits(key, "")
			return keeps, nil
		}
		if stays == "" {
			stays = fmt.Sprintf("%d replicas stay: %s", removal.Replicas, why)
			// What comes up elsewhere may make more of it surplus.
			m.change(key, func(a *applied) { a.pends = true })
		}
	}
	m.waits(key, stays)
	m.queue.AddAfter(key, askAgain)
	return there.replicas, nil
}

// shrinkSteps are the numbers to ask for, in this order: the one granted, which
// may use up what the strategy lets be unavailable, then the one that gives up
// nothing but surplus. Going back stands still without the second: replicas
// elsewhere do not grow before these go.
func shrinkSteps(d *decision, present, want, elsewhere int32) []int32 {
	steps := []int32{want}
	if least := d.total - elsewhere; d.divided && !d.askedLess && want < least && least < present {
		steps = append(steps, least)
	}
	return steps
}

// shrinking describes that a copy goes down to what it keeps.
func (m *member) shrinking(key marks.Key, d *decision, keeps int32, there *copyRecord) breaker.Removal {
	removal := breaker.Removal{
		Cluster: m.name, Template: key.String(), Class: breaker.Derived,
		Amount: breaker.Amount{Replicas: int64(there.replicas - keeps)},
		Token:  fmt.Sprintf("scale %s %d>%d of %d", there.UID, there.replicas, keeps, d.since.Unix()),
	}
	if d.askedLess {
		removal.Class = breaker.Asked
	}
	share, stays := d.targets[m.name]
	removal.Whole.Replicas = int64(there.replicas - share)
	if !stays {
		removal.Whole.Objects = 1
	}
	m.engine.describeDecision(key, m.name, d, keeps, &removal)
	return removal
}

// waits records that a removal waits, or, with an empty text, that none does.
func (m *member) waits(key marks.Key, why string) {
	if m.record(key).waits == why {
		return
	}
	m.change(key, func(a *applied) { a.waits = why })
	if why == "" {
		m.engine.breaker.settled(m.name, key)
	}
	m.engine.statusQueue.Add(key)
	if why != "" {
		// The placement may want the copy again meanwhile.
		m.engine.templateQueue.Add(key)
	}
	if t := m.engine.template(key); t != nil && why != "" {
		m.engine.event(key, t, "Warning", reasonWaits, "%s: %s", m.name, why)
	}
}

// describeDecision says whether a removal takes back a change, and whether it
// takes away nothing but surplus: with the number that the copy keeps, and what
// is available elsewhere, the template still has all that it wants.
func (e *Engine) describeDecision(key marks.Key, cluster string, d *decision, keeps int32, r *breaker.Removal) {
	r.Nearer = d.nearer
	r.Surplus = d.divided && keeps+e.elsewhere(key, cluster, d) >= d.total
}

// elsewhere is what is available in the other clusters of the placement.
func (e *Engine) elsewhere(key marks.Key, cluster string, d *decision) int32 {
	var n int32
	for name := range d.targets {
		if name != cluster {
			n += e.available(key, name)
		}
	}
	return n
}

// available replicas of the copy in a cluster.
func (e *Engine) available(key marks.Key, cluster string) int32 {
	m := e.member(cluster)
	if m == nil {
		return 0
	}
	c := m.copy(key)
	if c == nil || !c.owned {
		return 0
	}
	status, err := c.decodeStatus()
	if err != nil {
		return 0
	}
	n, _ := status["availableReplicas"].(int64)
	return min(int32(n), c.replicas)
}
