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
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
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
	problem   string
	node      *node     // that the template asks for
	at        time.Time // when it became what it is

	spread   bool  // the replicas are divided over the clusters
	replicas int32 // of the template, brought within its autoscaler's bounds
	budgeted bool  // the strategy holds over all clusters together
	strategy strategy
	shares   map[string]rollout.Budget
	bounds   map[string]replicas.Autoscaler
	// disruption is, by field, each cluster's part of a PodDisruptionBudget.
	disruption map[string]map[string]int32
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
	if _, no := intent.Forbidden(key.GroupKind(), t, s.Type); no {
		return nil
	}
	if err := e.countReplicas(ctx, key, t, &s); err != nil {
		return err
	}
	want, d := e.decide(key, t, b, s)
	if want == nil {
		return nil
	}
	d.total = want.Replicas
	d.askedLess = b != nil && b.Spec.Resource.UID == t.UID && b.Spec.Replicas > want.Replicas
	if b, err = e.record(ctx, key, t, b, want, d); err != nil {
		return err
	}
	d.bindingID = b.Labels[bindingLabel(key)]
	last := moveOf(&b.ObjectMeta)
	d.nearer, d.since = last.nearer(d.targets), last.Since
	d.basis = max(latest(t.ResourceVersion, b.ResourceVersion), e.policies.revision.Load())
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
	e.tellMembers(ctx, key, d)
	e.statusQueue.Add(key)
	return nil
}

// tellMembers queues the template for its targets and for members that hold a
// copy.
func (e *Engine) tellMembers(ctx context.Context, key marks.Key, d *decision) {
	e.useKind(ctx, key.GroupKind())
	for _, m := range e.memberList() {
		if _, ok := d.targets[m.name]; ok || m.copy(key) != nil {
			m.queue.Add(key)
		}
	}
}

// decide makes the binding that a template should have, and the decision that
// goes with it. A nil binding means that nothing is to be done.
func (e *Engine) decide(key marks.Key, t *template, b *binding, s shape) (*workv1alpha2.ResourceBindingSpec, *decision) {
	index, overrides := e.policies.current()
	ref := placement.Template{
		APIVersion: key.GroupVersion().String(), Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		Labels: t.Labels, ExactName: intent.NeedsExactName(key.GroupKind()),
	}
	policy, matched := index.Match(ref, claimOf(b))
	matched = matched && speaks(index, policy, b)
	if key.GroupKind() == namespaceKind && t.Labels[skipNamespaceLabel] == "true" {
		matched = false
	}
	required, requiredBy := e.requiredClusters(key)
	if !matched && len(required) == 0 && b == nil {
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
	switch {
	case matched:
		adoptPolicy(want, policy)
	case b != nil && b.Spec.Placement != nil:
		// The policy is gone: what runs goes on as it was.
		keepFormer(want, b)
	}
	e.setNeedsOf(key, t, want.PropagateDeps)
	d := &decision{uid: t.UID, content: t.content, generation: t.Generation, overrides: overrides.For(ref), revise: e.reviser(key.GroupVersionKind)}
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

// spreads says whether replicas are divided, not copied.
func spreads(p *policyv1alpha1.Placement) bool {
	return p != nil && p.ReplicaScheduling != nil && p.ReplicaScheduling.ReplicaSchedulingType != policyv1alpha1.ReplicasDuplicated
}

func adoptPolicy(want *workv1alpha2.ResourceBindingSpec, p *placement.Policy) {
	want.PropagateDeps = p.Spec.PropagateDeps
	want.Placement = p.Spec.Placement.DeepCopy()
	want.ConflictResolution = p.Spec.ConflictResolution
	want.Suspension = p.Spec.Suspension.DeepCopy()
	want.PreserveResourcesOnDeletion = p.Spec.PreserveResourcesOnDeletion
	want.SchedulerName = p.Spec.SchedulerName
}

func keepFormer(want *workv1alpha2.ResourceBindingSpec, b *binding) {
	want.PropagateDeps = b.Spec.PropagateDeps
	want.Placement = b.Spec.Placement
	want.ConflictResolution = b.Spec.ConflictResolution
	want.Suspension = b.Spec.Suspension
	want.PreserveResourcesOnDeletion = b.Spec.PreserveResourcesOnDeletion
	want.SchedulerName = b.Spec.SchedulerName
}

// place fills in the targets: those of the policy, and those that others need.
func (e *Engine) place(key marks.Key, t *template, b *binding, s shape, want *workv1alpha2.ResourceBindingSpec, required []string, d *decision) {
	previous := e.previous(key, t, b)
	targets := map[string]int32{}
	d.node = e.nodeOf(s)
	if want.Placement != nil {
		in := placement.Input{
			UID: t.UID, Placement: *want.Placement, Divisible: divisible(key.GroupKind()) || s.counted != nil, Replicas: want.Replicas,
			Clusters: d.node.around(e.clusters(s)), Previous: previous, Fresh: fresh(t, b, want),
		}
		d.divided = in.Divisible
		result := placement.Decision{Targets: previous, Reason: placement.ReasonSuccess}
		if placement.Due(in) {
			result = e.anchored(t, s, in, placement.Place(in))
		}
		if !result.OK() || result.Reason == placement.ReasonPostponed {
			d.problem = result.Message
		}
		for _, target := range result.Targets {
			targets[target.Cluster] = target.Replicas
		}
	}
	known := map[string]bool{}
	for _, m := range e.memberList() {
		known[m.name] = true
	}
	if sticky(key.GroupKind()) {
		for _, p := range previous {
			required = append(required, p.Cluster)
		}
	}
	for _, cluster := range required {
		if _, ok := targets[cluster]; !ok && known[cluster] {
			targets[cluster] = 0
		}
	}
	d.targets = targets
	switch key.GroupKind() {
	case autoscalerKind:
		e.divideScaler(t, d)
	case budgetKind:
		e.divideBudget(t, d)
	}
	for _, cluster := range slices.Sorted(maps.Keys(targets)) {
		if known[cluster] {
			want.Clusters = append(want.Clusters, workv1alpha2.TargetCluster{Name: cluster, Replicas: targets[cluster]})
		} else {
			delete(targets, cluster)
		}
	}
}

// previous targets: those recorded, or else what is found in the members.
func (e *Engine) previous(key marks.Key, t *template, b *binding) []placement.Target {
	var out []placement.Target
	if b != nil && b.Spec.Resource.UID == t.UID {
		for _, c := range b.Spec.Clusters {
			out = append(out, placement.Target{Cluster: c.Name, Replicas: c.Replicas})
		}
		return append(out, e.stillThere(key, b)...)
	}
	for _, m := range e.memberList() {
		if c := m.copy(key); c != nil && c.owned {
			out = append(out, placement.Target{Cluster: m.name, Replicas: c.replicas})
		}
	}
	if len(out) == 0 && b == nil && adopts[key.GroupKind()] && e.cfg.Unowned != nil {
		return e.adoptable(t)
	}
	return out
}

// stillThere are copies that the recorded placement leaves out and the breaker
// has kept: where the cluster fits again, they are targets as before.
func (e *Engine) stillThere(key marks.Key, b *binding) []placement.Target {
	var out []placement.Target
	for _, m := range e.memberList() {
		c := m.copy(key)
		if c == nil || !c.owned || m.record(key).waits == "" || slices.Contains(clusterNames(b.Spec.Clusters), m.name) {
			continue
		}
		out = append(out, placement.Target{Cluster: m.name, Replicas: c.replicas})
	}
	return out
}

// fresh says whether the placement has changed or a new decision is asked for.
func fresh(t *template, b *binding, want *workv1alpha2.ResourceBindingSpec) bool {
	if b == nil || b.Spec.Resource.UID != t.UID {
		return false
	}
	if r := b.Spec.RescheduleTriggeredAt; r != nil && (b.Status.LastScheduledTime == nil || r.After(b.Status.LastScheduledTime.Time)) {
		return true
	}
	return b.Spec.Placement != nil && !equality.Semantic.DeepEqual(b.Spec.Placement, want.Placement)
}

// clusters are the members as placement sees them.
func (e *Engine) clusters(s shape) []placement.Cluster {
	request := s.request
	if request == nil && s.Spec.Template != nil && s.Spec.Template.Spec != nil {
		request = placement.Request(s.Spec.Template.Spec)
	}
	members := e.memberList()
	out := make([]placement.Cluster, 0, len(members))
	for _, m := range members {
		c := m.cluster()
		if request != nil {
			c.Available = placement.Room(m.info().Free, request)
		}
		out = append(out, c)
	}
	return out
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
