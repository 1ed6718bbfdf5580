package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/dependencies"
	"github.com/isthmus-dev/isthmus/pkg/federation/intent"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/override"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// decision is what was decided, and recorded, for the present content of a
// template. Members are written to only on a decision for what they would be
// told.
type decision struct {
	uid        types.UID
	content    uint64
	generation int64
	targets    map[string]int32
	nearer     bool      // the placement is nearer to what had stood than the one before
	since      time.Time // when the placement was decided
	divided    bool
	bindingID  string
	stamp      string // revision, "NAME/UID"
	// basis is the newest revision of the control plane that was decided on.
	basis uint64
	// total of replicas; askedLess: the template itself has come to want fewer.
	total     int32
	askedLess bool
	overrides override.Rules
	overwrite bool
	suspended bool
	suspendOn []string
	follows   followed
	group     string // of clusters, by the placement
	reason    string // of the placement
	problem   string
	limit     limit         // of the namespace
	again     time.Duration // when time alone may change the decision
	node      *node         // that the template asks for
	eviction  *evicting     // by failover; nil without
	at        time.Time     // when it became what it is

	spread   bool  // the replicas are divided over the clusters
	replicas int32 // of the template, brought within its autoscaler's bounds
	budgeted bool  // the strategy holds over all clusters together
	strategy strategy
	shares   map[string]rollout.Budget
	bounds   map[string]replicas.Autoscaler
	// disruption is, by field, each cluster's part of a PodDisruptionBudget.
	disruption map[string]map[string]int32
	// quota is what the clusters are granted and told of a ResourceQuota.
	quota quota.State
	// revise sets a cluster's replicas in kinds that scripts count.
	revise func(map[string]any, int32) (map[string]any, error)

	mu       sync.Mutex
	outlines map[string]*outline // by cluster, as the arbiter needs them
}

// evidence is the newest revision of the control plane that a write of the
// template is based on.
func (d *decision) evidence(t *template) uint64 { return max(d.basis, revisionOf(t.ResourceVersion)) }

func (d *decision) isSuspended(cluster string) bool {
	return d.suspended || slices.Contains(d.suspendOn, cluster)
}

func (e *Engine) decisionOf(key marks.Key) *decision {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.decisions[key]
}

func (e *Engine) setDecision(key marks.Key, d *decision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d == nil {
		delete(e.decisions, key)
		return
	}
	d.at = time.Now()
	was := e.decisions[key]
	if was != nil && was.uid == d.uid {
		// As long as nothing else moves, the copies go where the template asked.
		d.askedLess = d.askedLess || was.askedLess && was.total == d.total && maps.Equal(was.targets, d.targets)
	}
	if was != nil && was.content == d.content && maps.Equal(was.targets, d.targets) {
		d.at = was.at
	}
	e.decisions[key] = d
}

// shape is what placement reads of a template's spec.
type shape struct {
	Type string `json:"type"`
	Spec struct {
		Replicas             *int32   `json:"replicas"`
		Paused               bool     `json:"paused"`
		RevisionHistoryLimit *int32   `json:"revisionHistoryLimit"`
		Finalizers           []string `json:"finalizers"`
		Template             *struct {
			Spec *corev1.PodSpec `json:"spec"`
		} `json:"template"`
		VolumeClaimTemplates []struct{} `json:"volumeClaimTemplates"`
	} `json:"spec"`

	// counted and request are what scripts say of replicas, of kinds that they
	// count.
	counted *int32
	request corev1.ResourceList
}

func (t *template) shape() (shape, error) {
	var s shape
	if err := json.Unmarshal(t.raw, &s); err != nil {
		// A custom resource may give these names another meaning.
		var typeOnly struct {
			Type any `json:"type"`
		}
		if json.Unmarshal(t.raw, &typeOnly) != nil {
			return s, fmt.Errorf("template %s/%s: %w", t.Namespace, t.Name, err)
		}
	}
	return s, nil
}

// reconcileTemplate decides where a template runs, records it, and tells the
// members.
func (e *Engine) reconcileTemplate(ctx context.Context, key marks.Key) error {
	t, b := e.template(key), e.bindings.get(key)
	if t == nil {
		e.orphaning.forget(key)
		e.troubles.forget(key)
		e.vitals.forget(key)
		e.setDecision(key, nil)
		if b != nil && b.Annotations[deletedTemplate] != "" {
			return e.finishRecorded(ctx, key, b)
		}
		return nil
	}
	if t.DeletionTimestamp != nil {
		e.setDecision(key, nil)
		e.setNeeds(key, nil)
		return e.finalize(ctx, key, t, b)
	}
	s, err := t.shape()
	if err != nil {
		return err
	}
	if why, no := intent.Forbidden(key.GroupKind(), t, s.Type); no {
		e.refuse(key, t, why)
		return nil
	}
	d, b, err := e.decideAndRecord(ctx, key, t, b, s)
	if err != nil || d == nil {
		return err
	}
	if d.again > 0 {
		e.templateQueue.AddAfter(key, d.again)
	}
	d.bindingID = b.Labels[bindingLabel(key)]
	last := moveOf(&b.ObjectMeta)
	d.nearer, d.since = last.nearer(d.targets), last.Since
	d.basis = max(latest(t.ResourceVersion, b.ResourceVersion), e.policies.revision.Load())
	if written, err := e.mirror(ctx, key, t, d.follows); written || err != nil {
		return err // the change comes back as an event
	}
	if len(d.targets) > 0 && !t.finalized() {
		// The change comes back as an event, with the finalizer in place.
		return e.addFinalizer(ctx, key, t)
	}
	e.mu.Lock()
	delete(e.finalized, key)
	e.mu.Unlock()
	switch {
	case key.GroupKind() == deploymentKind:
		if d.stamp, err = e.ensureRevision(ctx, key, t, s); err != nil {
			return err
		}
	case hasHistory(key.GroupKind()):
		if err = e.ensureHistory(ctx, key, t, s); err != nil {
			return err
		}
	}
	if err := e.shareOut(key, t, d); err != nil {
		return err
	}
	e.setDecision(key, d)
	e.tellMembers(ctx, key, d, e.templateQueue.Level(key))
	e.statusQueue.AddAs(key, e.templateQueue.Level(key))
	return nil
}

// decideAndRecord decides, and records what is decided. One at a time those
// whose groups look at each other's clusters.
func (e *Engine) decideAndRecord(ctx context.Context, key marks.Key, t *template, b *binding, s shape) (*decision, *binding, error) {
	if err := e.countReplicas(ctx, key, t, &s); err != nil {
		return nil, nil, err
	}
	limit, err := e.limitOf(key)
	if err != nil {
		return nil, nil, err
	}
	want, d := e.decide(key, t, b, s, limit) //nolint:contextcheck // scripts are bounded by the sandbox
	if want != nil && want.WorkloadAffinityGroups != nil {
		e.cohorts.Lock()
		defer e.cohorts.Unlock()
		want, d = e.decide(key, t, b, s, limit) //nolint:contextcheck // scripts are bounded by the sandbox
	}
	if want == nil {
		return nil, nil, nil
	}
	d.total = want.Replicas
	d.askedLess = b != nil && b.Spec.Resource.UID == t.UID && b.Spec.Replicas > want.Replicas
	stored, err := e.record(ctx, key, t, b, want, d)
	return d, stored, err
}

// tellMembers queues the template for its targets and for members that hold a
// copy.
func (e *Engine) tellMembers(ctx context.Context, key marks.Key, d *decision, level priority.Level) {
	e.useKind(ctx, key.GroupKind())
	for _, m := range e.memberList() {
		if _, ok := d.targets[m.name]; ok || m.copy(key) != nil {
			m.queue.AddAs(key, level)
		}
	}
}

// decide makes the binding that a template should have, and the decision that
// goes with it. A nil binding means that nothing is to be done.
func (e *Engine) decide(key marks.Key, t *template, b *binding, s shape, l limit) (*workv1alpha2.ResourceBindingSpec, *decision) {
	_, overrides := e.policies.current()
	ref := referenceOf(key, t)
	f := e.follow(key, t, b, ref)
	required, requiredBy := e.requiredClusters(key)
	if f.policy == nil && len(required) == 0 && b == nil {
		return nil, nil
	}
	want := &workv1alpha2.ResourceBindingSpec{Resource: workv1alpha2.ObjectReference{
		APIVersion: ref.APIVersion, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: t.UID,
	}, RequiredBy: requiredBy, ConflictResolution: policyv1alpha1.ConflictAbort}
	if divisible(key.GroupKind()) {
		want.Replicas = replicas.Wanted(ptr.Deref(s.Spec.Replicas, 1), e.boundsOf(key))
	} else if s.counted != nil {
		want.Replicas = *s.counted
	}
	d := &decision{uid: t.UID, content: t.content, generation: t.Generation, follows: f, overrides: overrides.For(ref), revise: e.reviser(key.GroupVersionKind)}
	switch {
	case f.policy != nil && !f.former:
		e.adoptPolicy(want, f.policy, t, s)
	case b != nil && b.Spec.Placement != nil:
		// The policy is gone, or must not act yet: what runs goes on as it was.
		keepFormer(want, b)
	}
	d.limit = l
	l.apply(want)
	keepSchedulingSuspension(want, b)
	e.setNeedsOf(key, t, want.PropagateDeps)
	d.overwrite = want.ConflictResolution == policyv1alpha1.ConflictOverwrite
	if v, ok := t.Annotations[conflictAnnotation]; ok {
		d.overwrite = strings.EqualFold(v, "overwrite")
	}
	if sp := want.Suspension; sp != nil {
		d.suspended = ptr.Deref(sp.Dispatching, false)
		if sp.DispatchingOnClusters != nil {
			d.suspendOn = sp.DispatchingOnClusters.ClusterNames
		}
	}
	e.place(key, t, b, s, want, required, d)
	d.replicas, d.spread = want.Replicas, d.divided && spreads(want.Placement)
	return want, d
}

// requiredClusters are the clusters where something else needs the template.
func (e *Engine) requiredClusters(key marks.Key) ([]string, []workv1alpha2.BindingSnapshot) {
	if key.GroupKind() == namespaceKind {
		return e.needs.clustersOf(key.Name), nil
	}
	all := map[string]struct{}{}
	var by []workv1alpha2.BindingSnapshot
	for _, w := range e.needs.workloads(key, labels.Set(e.template(key).labels())) {
		b := e.bindings.get(w)
		if b == nil {
			continue
		}
		snapshot := workv1alpha2.BindingSnapshot{Namespace: b.Namespace, Name: b.Name}
		for _, c := range b.Spec.Clusters {
			all[c.Name] = struct{}{}
			snapshot.Clusters = append(snapshot.Clusters, workv1alpha2.TargetCluster{Name: c.Name})
		}
		by = append(by, snapshot)
	}
	slices.SortFunc(by, func(a, b workv1alpha2.BindingSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return slices.Sorted(maps.Keys(all)), by
}

// setNeedsOf reads what a workload needs.
func (e *Engine) setNeedsOf(key marks.Key, t *template, follow bool) {
	if !follow {
		e.setNeeds(key, nil)
		return
	}
	refs, err := e.dependenciesOf(context.Background(), key, t)
	if err != nil {
		klog.Background().V(1).Info("Dependencies cannot be read", "template", key.String(), "err", err)
		return
	}
	e.setNeeds(key, refs)
}

func (e *Engine) setNeeds(key marks.Key, refs []dependencies.Ref) {
	e.enqueueTargets(e.needs.set(key, refs))
}

func (e *Engine) enqueueTargets(targets []target) {
	for _, n := range targets {
		w := e.kindOf(n.groupKind())
		switch {
		case w == nil:
			e.policies.poke() // its kind is not watched yet
		case n.selector != "":
			for _, obj := range w.informer.GetStore().List() {
				if t, ok := obj.(*template); ok && t.Namespace == n.namespace && n.selects(labels.Set(t.Labels)) {
					e.templateQueue.Add(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
				}
			}
		default:
			e.templateQueue.Add(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: n.namespace, Name: n.name})
		}
	}
}

// primeNeeds fills the needs from the caches, so that the first decision about
// a ConfigMap knows all who need it.
func (e *Engine) primeNeeds() {
	e.mu.RLock()
	watches := slices.Collect(maps.Values(e.kinds))
	e.mu.RUnlock()
	for _, w := range watches {
		for _, obj := range w.informer.GetStore().List() {
			t, ok := obj.(*template)
			if !ok || t.DeletionTimestamp != nil {
				continue
			}
			key := marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name}
			b := e.bindings.get(key)
			if b == nil {
				continue
			}
			if b.Spec.PropagateDeps {
				if refs, err := e.dependenciesOf(context.Background(), key, t); err == nil {
					e.needs.set(key, refs)
				}
			}
		}
	}
}
