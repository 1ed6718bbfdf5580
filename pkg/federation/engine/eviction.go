package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/aggregate"
	workv1alpha2 "github.com/isthmus-dev/isthmus/pkg/federation/apis/work/v1alpha2"
	"github.com/isthmus-dev/isthmus/pkg/federation/eviction"
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// leftAnnotation, on a binding, are the clusters that the template has left
// because it failed there.
const leftAnnotation = "isthmus.dev/left-clusters"

// vitals are since when copies have been unhealthy. They are not kept over a
// restart: then the time begins anew.
type vitals struct {
	mu sync.Mutex
	of map[marks.Key]vital
}

type vital struct {
	uid     types.UID
	content string
	copies  map[string]eviction.Copy
}

// note takes down what is seen, and says whether it is something new.
func (v *vitals) note(key marks.Key, uid types.UID, content string, seen []eviction.Copy, now time.Time) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.of[key]
	if was.uid != uid || was.content != content {
		was = vital{}
	}
	next := vital{uid: uid, content: content, copies: make(map[string]eviction.Copy, len(seen))}
	for _, c := range seen {
		before, known := was.copies[c.Cluster]
		if c.Unhealthy {
			if c.Since = now; before.Unhealthy {
				c.Since = before.Since
			}
		}
		changed = changed || !known || before != c
		next.copies[c.Cluster] = c
	}
	if v.of == nil {
		v.of = map[marks.Key]vital{}
	}
	v.of[key] = next
	return changed || len(was.copies) != len(next.copies)
}

func (v *vitals) forget(key marks.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, key)
}

// copiesIn is what is known of the copies in these clusters.
func (v *vitals) copiesIn(key marks.Key, uid types.UID, content string, clusters []string) []eviction.Copy {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.of[key]
	out := make([]eviction.Copy, 0, len(clusters))
	for _, name := range clusters {
		c := eviction.Copy{Cluster: name}
		if known.uid == uid && known.content == content && known.copies[name].Cluster != "" {
			c = known.copies[name]
		}
		out = append(out, c)
	}
	return out
}

// noteHealth has a template decided on again when the health of a copy has
// changed and the policy asks for that.
func (e *Engine) noteHealth(key marks.Key, t *template, d *decision, parts []aggregate.Part) {
	if d.eviction == nil {
		e.vitals.forget(key)
		return
	}
	seen := make([]eviction.Copy, 0, len(parts))
	for _, p := range parts {
		c := eviction.Copy{Cluster: p.Cluster}
		if m := e.member(p.Cluster); m != nil && m.info().Ready && p.StaleSince == "" && p.Exists {
			c.Healthy, c.Unhealthy = p.Health == interpreter.Healthy && p.Applied, p.Health == interpreter.Unhealthy
		}
		seen = append(seen, c)
	}
	if e.vitals.note(key, t.UID, d.eviction.content, seen, time.Now()) {
		e.templateQueue.Add(key)
	}
}

// evicting is what failover has to do with one decision.
type evicting struct {
	content string // that fails or does not
	tasks   []eviction.Task
	left    []eviction.Left
	stages  map[string]eviction.Stage // of tasks, by cluster
	failed  map[string]string         // why copies are to leave
	began   []eviction.Task
	state   map[string]map[string]string
	pending []string
}

func (d *decision) held(cluster string) bool {
	return d.eviction != nil && d.eviction.stages[cluster] == eviction.Held && d.eviction.has(cluster)
}

func (d *decision) goes(cluster string) bool {
	return d.eviction != nil && d.eviction.stages[cluster] == eviction.Going && d.eviction.has(cluster)
}

func (v *evicting) has(cluster string) bool {
	_, ok := v.stages[cluster]
	return ok
}

// labelsFor are the labels that a copy is told of one that was left.
func (v *evicting) labelsFor(cluster string) map[string]string {
	if v == nil {
		return nil
	}
	return eviction.LabelsFor(cluster, v.left, v.tasks)
}

// substance is what of a template can be at fault: not how many there are.
func substance(t *template) string {
	h := t.content // where nothing better is known
	if u, err := t.decode(); err == nil {
		if spec, err := hashOf(without(u.Object["spec"], "replicas")); err == nil {
			h = spec
		}
	}
	return strconv.FormatUint(h, 16)
}

// leftOf reads the record of a binding.
func leftOf(b *binding) (out []eviction.Left) {
	if b == nil || json.Unmarshal([]byte(b.Annotations[leftAnnotation]), &out) != nil {
		return nil
	}
	return out
}

// noteLeft keeps the record on the binding.
func noteLeft(out *binding, d *decision) error {
	if d.eviction == nil || len(d.eviction.left) == 0 {
		delete(out.Annotations, leftAnnotation)
		return nil
	}
	text, err := json.Marshal(d.eviction.left)
	if err != nil {
		return fmt.Errorf("clusters left: %w", err)
	}
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, leftAnnotation, string(text))
	return nil
}

// evictions carries on what was begun, and finds what has failed since.
func (e *Engine) evictions(key marks.Key, t *template, b *binding, want *workv1alpha2.ResourceBindingSpec, d *decision, now time.Time) {
	f := want.Failover
	placed := b != nil && b.Spec.Resource.UID == t.UID
	begun := placed && (len(b.Spec.GracefulEvictionTasks) > 0 || b.Annotations[leftAnnotation] != "")
	if !begun && (f == nil || f.Application == nil) && (f == nil || f.Cluster == nil) {
		return
	}
	content := substance(t)
	v := &evicting{content: content, failed: map[string]string{}, stages: map[string]eviction.Stage{}, state: map[string]map[string]string{}}
	d.eviction = v
	if !placed {
		return
	}
	targets := clusterNames(b.Spec.Clusters)
	copies := e.vitals.copiesIn(key, t.UID, content, targets)
	_, restart := fresh(t, b, want)
	v.left = eviction.Remember(leftOf(b), content, f != nil && f.Application != nil && !restart, targets)
	for i := range b.Spec.GracefulEvictionTasks {
		task := b.Spec.GracefulEvictionTasks[i]
		if slices.Contains(targets, task.FromCluster) {
			continue // somebody has placed it there again
		}
		stage, next := eviction.Settle(&task, eviction.Progress{Gone: e.surelyGone(key, task.FromCluster), Targets: copies}, now)
		if stage == eviction.Ended {
			v.left = append(v.left, eviction.LeftBy(&task, content))
			continue
		}
		v.tasks, v.stages[task.FromCluster] = append(v.tasks, task), stage
		d.lookAgain(next, now)
	}
	if f == nil || f.Application == nil || eviction.Waiting(v.tasks, v.stages) {
		return
	}
	failed, next := eviction.Judge(f.Application, copies, now)
	d.lookAgain(next, now)
	for _, cluster := range failed {
		e.mayLeave(key, t, cluster, "the application fails there", v, func(status map[string]any) (map[string]string, error) {
			return eviction.State(f.Application.StatePreservation, status)
		})
	}
}

// mayLeave notes that a copy is to leave a cluster, unless the state that it
// has to take with it cannot be read.
func (e *Engine) mayLeave(key marks.Key, t *template, cluster, why string, v *evicting, state func(map[string]any) (map[string]string, error)) bool {
	var p aggregate.Part
	if m := e.member(cluster); m != nil {
		if there, _ := m.newest(key); there != nil && there.owned {
			if err := e.readStatus(key, t, m, there, &p); err != nil {
				v.pending = append(v.pending, cluster+": "+err.Error())
				return false
			}
		}
	}
	told, err := state(p.Status)
	if err != nil {
		v.pending = append(v.pending, cluster+": "+err.Error())
		return false
	}
	v.failed[cluster], v.state[cluster] = why, told
	return true
}

// lookAgain has the decision made again at a time.
func (d *decision) lookAgain(at, now time.Time) {
	if at.IsZero() {
		return
	}
	if left := at.Sub(now) + 100*time.Millisecond; d.again == 0 || left < d.again {
		d.again = left
	}
}

// surelyGone: there is certainly no copy of ours, or no such cluster any more.
func (e *Engine) surelyGone(key marks.Key, cluster string) bool {
	m := e.member(cluster)
	if m == nil {
		return true
	}
	if !m.info().Ready || m.filled(key.GroupKind()) != nil {
		return false
	}
	there, _ := m.newest(key)
	return there == nil || !there.owned
}

// avoid marks the clusters that are to be left, and those that were.
func (e *Engine) avoid(key marks.Key, t *template, want *workv1alpha2.ResourceBindingSpec, clusters []placement.Cluster, previous []placement.Target, d *decision) {
	v := d.eviction
	if v == nil {
		return
	}
	for i := range clusters {
		c := &clusters[i]
		had := holds(previous, c.Name)
		switch {
		case c.Failed != "" && had && want.Failover != nil && want.Failover.Cluster != nil:
			// Its cluster has failed: the state is the last that was seen.
			if _, known := v.failed[c.Name]; !known && !e.mayLeave(key, t, c.Name, "", v, func(status map[string]any) (map[string]string, error) {
				return eviction.State(want.Failover.Cluster.StatePreservation, status)
			}) {
				c.Failed = ""
			}
		case v.failed[c.Name] != "":
			c.Failed = v.failed[c.Name]
		case !had && (v.has(c.Name) || eviction.Avoided(v.left, v.content, c.Name)):
			c.Failed = "left because it failed there"
		}
	}
}

// keepOne has a copy stay for which nothing would be made elsewhere, and says
// whether there was one.
func (d *decision) keepOne(want *workv1alpha2.ResourceBindingSpec, clusters []placement.Cluster, previous, targets []placement.Target) bool {
	v := d.eviction
	if v == nil || d.divided && spreads(want.Placement) {
		return false // replicas are always made elsewhere
	}
	var failed []string
	for cluster, why := range v.failed {
		if why != "" {
			failed = append(failed, cluster)
		}
	}
	cluster, found := eviction.Unreplaced(failed, namesOf(previous), namesOf(targets))
	if !found {
		return false
	}
	i := slices.IndexFunc(clusters, func(c placement.Cluster) bool { return c.Name == cluster })
	if i < 0 || clusters[i].Failed != v.failed[cluster] {
		v.failed[cluster] = "" // its cluster has failed as well, and that counts
		return true
	}
	clusters[i].Failed = ""
	delete(v.failed, cluster)
	v.pending = append(v.pending, cluster+": the application fails there, and no other cluster takes its place")
	return true
}

func namesOf(targets []placement.Target) (out []string) {
	for _, t := range targets {
		out = append(out, t.Cluster)
	}
	return out
}

// begin records a task for each copy that has moved.
func (e *Engine) begin(want *workv1alpha2.ResourceBindingSpec, previous, targets []placement.Target, clusters []placement.Cluster, d *decision, now time.Time) {
	v := d.eviction
	if v == nil || len(targets) == 0 {
		return
	}
	before := namesOf(previous)
	for _, p := range previous {
		why, failed := v.failed[p.Cluster]
		if !failed || holds(targets, p.Cluster) {
			continue
		}
		move := eviction.Move{Cluster: p.Cluster, Replicas: p.Replicas, Message: why, State: v.state[p.Cluster], Before: before}
		if why != "" {
			v.start(eviction.Application(want.Failover.Application, move, now), d, now)
			continue
		}
		if i := slices.IndexFunc(clusters, func(c placement.Cluster) bool { return c.Name == p.Cluster }); i >= 0 {
			move.Message = clusters[i].Failed
		}
		if task, needed := eviction.Cluster(want.Failover.Cluster, move, now); needed {
			v.start(task, d, now)
		}
	}
}

func (v *evicting) start(task eviction.Task, d *decision, now time.Time) {
	// The new copies are not there yet.
	stage, next := eviction.Settle(&task, eviction.Progress{Targets: []eviction.Copy{{}}}, now)
	v.tasks, v.began, v.stages[task.FromCluster] = append(v.tasks, task), append(v.began, task), stage
	d.lookAgain(next, now)
}

// tellEvictions says what was recorded.
func (e *Engine) tellEvictions(key marks.Key, t *template, d *decision) {
	if d.eviction == nil {
		return
	}
	for _, task := range d.eviction.began {
		e.event(key, t, corev1.EventTypeWarning, reasonEvicted, "The copy in %s moves: %s (%s)", task.FromCluster, task.Message, task.PurgeMode)
	}
}

// replaced: what follows a copy of a kind without replicas is there.
func (e *Engine) replaced(key marks.Key, d *decision) bool {
	for cluster := range d.targets {
		m := e.member(cluster)
		if m == nil {
			return false
		}
		if there, _ := m.newest(key); there == nil || !there.owned || there.DeletionTimestamp != nil {
			return false
		}
	}
	return len(d.targets) > 0
}

// leaveEvicted is the part of leave that is about a copy left by failover. done
// is false where it goes like any other.
func (m *member) leaveEvicted(ctx context.Context, key marks.Key, d *decision) (done bool, err error) {
	switch {
	case d.held(m.name):
		return true, nil // the template's worker comes back with it
	case d.goes(m.name):
		return true, m.consider(ctx, key)
	case d.eviction != nil && d.eviction.has(m.name) && !divisible(key.GroupKind()) && !m.engine.replaced(key, d):
		m.queue.AddAfter(key, time.Second)
		return true, nil
	}
	return false, nil
}

func pendingMoves(v *evicting) string { return "not moved: " + strings.Join(v.pending, "; ") }
