package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// rolloutRecord is what a copy shows of its rollout.
type rolloutRecord struct {
	pods     uint64 // hash of the pod template, as far as it is ours
	paused   bool
	observed bool // the report is about the copy as it is
	mixed    bool // Pods of an earlier template are left
	failing  bool // Pods cannot be made, the member says
	total    int32
	strategy rollout.Budget
	ready    int32 // available Pods
}

// unmade is how many replicas the member says it cannot make.
func (r *copyRecord) unmade() int32 {
	if r == nil || !r.owned || r.rollout == nil || !r.rollout.failing || !r.rollout.observed {
		return 0
	}
	return max(0, r.replicas-r.rollout.total)
}

func recordRollout(u *unstructured.Unstructured, projected map[string]any) (*rolloutRecord, error) {
	spec, _ := projected["spec"].(map[string]any)
	pods, err := hashOf(spec["template"])
	if err != nil {
		return nil, err
	}
	var o struct {
		Spec struct {
			Replicas int32 `json:"replicas"`
			Paused   bool  `json:"paused"`
			Strategy struct {
				RollingUpdate struct {
					MaxSurge       *intstr.IntOrString `json:"maxSurge"`
					MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
				} `json:"rollingUpdate"`
			} `json:"strategy"`
		} `json:"spec"`
		Status struct {
			Observed  int64 `json:"observedGeneration"`
			Replicas  int32 `json:"replicas"`
			Updated   int32 `json:"updatedReplicas"`
			Available int32 `json:"availableReplicas"`

			Conditions []struct{ Type, Status string } `json:"conditions"`
		} `json:"status"`
	}
	raw, err := json.Marshal(map[string]any{"spec": without(u.Object["spec"], "template"), "status": u.Object["status"]})
	if err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	r := &rolloutRecord{pods: pods, paused: o.Spec.Paused, ready: o.Status.Available}
	r.observed, r.mixed, r.total = o.Status.Observed >= u.GetGeneration(), o.Status.Updated != o.Status.Replicas, o.Status.Replicas
	for _, c := range o.Status.Conditions {
		r.failing = r.failing || c.Type == string(appsv1.DeploymentReplicaFailure) && c.Status == string(metav1.ConditionTrue)
	}
	if u.GetKind() == deploymentKind.Kind {
		rolling := o.Spec.Strategy.RollingUpdate
		if r.strategy, err = rollout.Resolve(o.Spec.Replicas, rolling.MaxSurge, rolling.MaxUnavailable); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func without(v any, key string) map[string]any {
	m, _ := v.(map[string]any)
	out := maps.Clone(m)
	delete(out, key)
	return out
}

// unreported is what a copy has been told since its controllers last reported:
// until they do, they may act on any of it.
type unreported struct {
	least   int32
	worst   rollout.Budget
	content bool
}

// then adds what a copy is told now.
func (x *unreported) then(before, after *copyRecord) *unreported {
	if before == nil || before.rollout == nil || after.rollout == nil {
		return nil
	}
	out := unreported{least: before.replicas}
	if before.rollout.mixed {
		out.worst = before.rollout.strategy
	}
	if x != nil && !before.rollout.observed {
		out = *x
	}
	out.least = min(out.least, after.replicas)
	if after.rollout.pods != before.rollout.pods || after.rollout.paused != before.rollout.paused {
		out.content = true
	}
	if out.content || after.rollout.mixed {
		s := after.rollout.strategy
		out.worst = rollout.Budget{Surge: max(out.worst.Surge, s.Surge), Unavailable: max(out.worst.Unavailable, s.Unavailable)}
	}
	return &out
}

// reportDue: a template has been written, or is being, and the copy's status is
// about the one before.
func (a *applied) reportDue(there *copyRecord) bool {
	if there == nil || there.rollout == nil {
		return false
	}
	return a.rolling != nil || !there.rollout.observed && a.unreported != nil && a.unreported.content
}

// rolloutOf fills in what a copy shows of its rollout.
func rolloutOf(c *rollout.Cluster, there *copyRecord, last applied) {
	r := there.rollout
	c.Exists, c.Present, c.Least, c.Available, c.InForce, c.Rolling = true, there.replicas, there.replicas, r.ready, r.strategy, r.mixed
	if x := last.unreported; !r.observed && x != nil {
		c.Least, c.InForce, c.Rolling = min(c.Least, x.least), x.worst, r.mixed || x.content
	} else if !r.observed {
		// Nothing is known of what it was told before.
		c.Least, c.Rolling = min(c.Least, r.total), true
	}
	if n := last.replicas; n != nil { // being written
		c.Least, c.Present = min(c.Least, *n), *n
	}
	if s := last.rolling; s != nil {
		if !c.Rolling {
			c.InForce = rollout.Budget{}
		}
		c.InForce = rollout.Budget{Surge: max(c.InForce.Surge, s.Surge), Unavailable: max(c.InForce.Unavailable, s.Unavailable)}
		c.Rolling = true
	}
}

// view is what the arbiter says to one cluster about one workload.
type view struct {
	grant      rollout.Grant
	autoscaled bool
	basis      uint64 // what a write is based on
	// retry is when to ask again although nothing happens; zero for never.
	retry time.Duration
	// unknown: what runs elsewhere is not known yet; nothing may be changed.
	unknown bool
}

// arbiter serializes the plans of one workload: what was granted is noted
// before the next plan is made.
type arbiter struct {
	locks [64]sync.Mutex
}

func (a *arbiter) lock(key marks.Key) func() {
	var h uint32
	for _, c := range []byte(key.Namespace + "/" + key.Name) {
		h = h*31 + uint32(c)
	}
	l := &a.locks[h%uint32(len(a.locks))]
	l.Lock()
	return l.Unlock
}

// arbitrate asks for what a cluster may do now. With content, a granted
// template counts as rolling from now on.
func (e *Engine) arbitrate(key marks.Key, t *template, d *decision, cluster string, content bool) (*view, error) {
	defer e.arbiter.lock(key)()
	v := &view{basis: d.evidence(t)}
	w, clusters, err := e.ledgerOf(key, t, d, v)
	if err != nil || v.unknown {
		return v, err
	}
	v.grant = rollout.Plan(w, clusters)[cluster]
	for _, c := range clusters {
		if c.Name != cluster {
			continue
		}
		v.autoscaled = c.Autoscaled
		if m := e.member(cluster); m != nil && content && c.Outdated && v.grant.Template {
			m.change(key, func(a *applied) { a.rolling = &c.Next })
		}
	}
	return v, nil
}

// ledgerOf collects what all clusters run of a workload.
func (e *Engine) ledgerOf(key marks.Key, t *template, d *decision, v *view) (rollout.Workload, []rollout.Cluster, error) {
	var clusters []rollout.Cluster
	var whole int32 // replicas that the budget is of
	w := rollout.Workload{Unlimited: !d.budgeted, AtOnce: !d.budgeted}
	for _, m := range e.memberList() {
		_, wanted := d.targets[m.name]
		there, last := m.newest(key)
		if !wanted && (there == nil || !there.owned) {
			continue
		}
		c, ok := e.clusterOf(m, key, t, d, there, last, v)
		if !ok {
			continue
		}
		share := c.Target
		if c.Autoscaled {
			share = c.Present
		}
		whole += share
		if !c.Lost {
			w.Desired += share
		}
		clusters = append(clusters, c)
	}
	if !d.spread {
		// Every copy is the whole workload; one of them has to be there.
		whole = d.replicas
		w.Desired = min(w.Desired, whole)
	}
	w.Missing = whole - w.Desired
	var err error
	if w.Budget, err = d.budget(whole); err != nil {
		return w, nil, fmt.Errorf("%s: %w", key, err)
	}
	for i := range clusters {
		if clusters[i].Next == (rollout.Budget{}) {
			clusters[i].Next = w.Budget
		}
	}
	return w, clusters, nil
}

// clusterOf is one cluster's part; ok is false where nobody can say anything.
func (e *Engine) clusterOf(m *member, key marks.Key, t *template, d *decision, there *copyRecord, last applied, v *view) (rollout.Cluster, bool) {
	c := rollout.Cluster{Name: m.name}
	info := m.info()
	filled := m.filled(key.GroupKind()) == nil
	switch {
	case m.client == nil:
		return c, false
	case info.Ready && !filled:
		if why := m.filled(key.GroupKind()); !isNotServed(why) {
			v.unknown, v.retry = true, 500*time.Millisecond
		}
		return c, false
	case !info.Ready:
		left := e.cfg.Grace - time.Since(info.NotReadySince)
		if c.Closed, c.Lost = true, left <= 0 || there == nil; !c.Lost {
			v.retry = left + time.Second
		}
	}
	_, wanted := d.targets[m.name]
	// What is held beside its replacement counts on neither side.
	c.Lost = c.Lost || !wanted && d.held(m.name)
	r, err := d.outlineFor(e, m, key, t)
	switch {
	case err != nil && wanted:
		return unsaid(c, there, last), true // its own worker reports it
	case err != nil:
		r = &outline{} // what is left needs no content
	}
	c.Target = r.replicas
	c.Next = r.strategy
	c.Troubled = last.problem != ""
	if there == nil || !there.owned || there.rollout == nil {
		if last.replicas != nil {
			c.Present = *last.replicas
		}
		return c, true
	}
	if there.DeletionTimestamp != nil {
		return c, false
	}
	rolloutOf(&c, there, last)
	c.Closed = c.Closed || there.held || d.isSuspended(m.name) || t.Annotations[marks.Hold] != ""
	c.Outdated = wanted && last.rolling == nil && r.starts(there, last)
	c.Autoscaled = c.Target > 0 && e.scaled(key, m, d.replicas, there.replicas, r.fixed)
	return c, true
}

// unsaid is the part of a cluster for which an override or a script fails: it
// stays as it is, and holds up nobody else.
func unsaid(c rollout.Cluster, there *copyRecord, last applied) rollout.Cluster {
	c.Closed, c.Troubled = true, true
	if there == nil || !there.owned || there.rollout == nil {
		c.Lost = true
		return c
	}
	rolloutOf(&c, there, last)
	c.Target = c.Present
	return c
}

// outline is what matters to the arbiter of what a cluster is to be told.
type outline struct {
	hash, pods uint64
	paused     bool
	replicas   int32
	fixed      bool // by an override
	strategy   rollout.Budget
}

// starts says whether writing the outline over a copy starts a rollout.
func (o *outline) starts(there *copyRecord, last applied) bool {
	switch {
	case o.paused:
		return false
	case there.rollout.paused && (there.rollout.mixed || !there.rollout.observed):
		return true
	case last.hash == o.hash && last.claims == there.claims && last.uid == there.UID:
		return false
	}
	return there.rollout.pods != o.pods
}

// outlineFor renders once per decision and cluster at most.
func (d *decision) outlineFor(e *Engine, m *member, key marks.Key, t *template) (*outline, error) {
	d.mu.Lock()
	o := d.outlines[m.name]
	d.mu.Unlock()
	if o != nil {
		return o, nil
	}
	cluster := m.cluster()
	if r := m.record(key).remembered(m.inputsOf(key, t, d, &cluster)); r != nil {
		recalled.WithLabelValues(m.name).Inc()
		return d.keepOutline(m.name, r), nil
	}
	renders.WithLabelValues(m.name).Inc()
	r, err := render(e.id, e.fence.epoch.Load(), key, t, d, &cluster)
	if err != nil {
		return nil, err
	}
	return d.keepOutline(m.name, r), nil
}

func (d *decision) keepOutline(cluster string, r *rendered) *outline {
	o := &outline{hash: r.hash, pods: r.pods, paused: r.paused, replicas: d.targets[cluster], strategy: d.shares[cluster]}
	if r.divided {
		o.fixed = d.divided && r.replicas != o.replicas
		o.replicas = r.replicas
	}
	if _, ok := d.targets[cluster]; !ok {
		o.replicas, o.fixed = 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.outlines == nil {
		d.outlines = map[string]*outline{}
	}
	d.outlines[cluster] = o
	return o
}

// awaken looks again at the members that wait for others.
func (e *Engine) awaken(key marks.Key) {
	for _, m := range e.memberList() {
		if m.record(key).pends {
			m.queue.Add(key)
		}
	}
}

// shareOut decides each cluster's part of a Deployment's budget.
func (e *Engine) shareOut(key marks.Key, t *template, d *decision) error {
	if !d.spread || key.GroupKind() != deploymentKind {
		return nil
	}
	var s struct {
		Spec struct {
			Strategy strategy `json:"strategy"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(t.raw, &s); err != nil {
		return fmt.Errorf("strategy of %s: %w", key, err)
	}
	d.strategy = s.Spec.Strategy
	if d.strategy.Type == "Recreate" {
		return nil
	}
	d.budgeted = true
	if len(d.targets) < 2 {
		return nil
	}
	parts := map[string]int32{}
	var whole int32
	for cluster, n := range d.targets {
		if m := e.member(cluster); m != nil {
			if c, _ := m.newest(key); c != nil && replicas.InCharge(e.scalers(key, m), d.replicas, c.replicas, false) {
				n = c.replicas
			}
		}
		parts[cluster] = n
		whole += n
	}
	b, err := d.budget(whole)
	if err != nil {
		return fmt.Errorf("strategy of %s: %w", key, err)
	}
	d.shares = rollout.Split(b, parts, t.UID)
	return nil
}

// strategy of a Deployment.
type strategy struct {
	Type          string `json:"type"`
	RollingUpdate *struct {
		MaxSurge       *intstr.IntOrString `json:"maxSurge"`
		MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	} `json:"rollingUpdate"`
}

func (d *decision) budget(whole int32) (rollout.Budget, error) {
	if r := d.strategy.RollingUpdate; r != nil {
		return rollout.Resolve(whole, r.MaxSurge, r.MaxUnavailable)
	}
	return rollout.Resolve(whole, nil, nil)
}
