package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// BreakerName is the ConfigMap of the breaker's state in the control plane,
// BreakerAnswersName that of what operators have answered.
const (
	BreakerName        = "isthmus-breaker"
	BreakerAnswersName = "isthmus-breaker-answers"
)

// Keys of BreakerName.
const (
	breakerStateKey = "state"
	// BreakerStatusKey holds a list of BreakerStatus.
	BreakerStatusKey = "status"
)

// BreakerStatus is a trip as `breaker status` shows it.
type BreakerStatus struct {
	breaker.Trip
	Waiting  breaker.Amount `json:"waiting"`
	Removals int            `json:"removals"`
	Clusters []string       `json:"clusters"`
	Examples []string       `json:"examples"`
}

// BreakerAnswer is what an operator says to a trip.
type BreakerAnswer struct {
	Trip   string      `json:"trip"`
	Answer string      `json:"answer"` // breaker.Approved or breaker.Rejected
	By     string      `json:"by,omitempty"`
	At     metav1.Time `json:"at"`
}

// ConditionRemovalsAllowed of a Cluster is False while removals wait for an
// operator. It appears with the first trip.
const ConditionRemovalsAllowed = "RemovalsAllowed"

// breakerKeeper runs the breaker for this leader and keeps its state.
type breakerKeeper struct {
	engine *Engine

	mu       sync.Mutex
	breaker  *breaker.Breaker
	sized    time.Time
	fleet    breaker.Size
	clusters map[string]breaker.Size
	dirty    bool
	stored   time.Time
	stopped  map[string]bool // clusters whose condition is False
	tripped  map[string]bool
	before   bool // an earlier leader had something stopped
	idle     int  // ticks for which nothing has been queued
}

func newBreakerKeeper(e *Engine) *breakerKeeper {
	return &breakerKeeper{engine: e, breaker: breaker.New(e.cfg.Breaker), stopped: map[string]bool{}, tripped: map[string]bool{}}
}

func (k *breakerKeeper) configMap(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.engine.cfg.RequestTimeout)
	defer cancel()
	u, err := k.engine.client.Resource(configMaps).Namespace(clusterv1alpha1.CredentialsNamespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	return data, nil
}

// load takes over what the leader before has counted.
func (k *breakerKeeper) load(ctx context.Context) error {
	return retryUntil(ctx, "read the breaker's state", func() error {
		data, err := k.configMap(ctx, BreakerName)
		if err != nil {
			return err
		}
		var s breaker.State
		if text := data[breakerStateKey]; text != "" {
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				// Counting anew is safe: nothing has been removed since.
				klog.FromContext(ctx).Error(err, "The breaker's state cannot be read, it begins anew")
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.breaker = breaker.Restore(k.engine.cfg.Breaker, s, time.Now())
		for _, t := range k.breaker.Trips() {
			k.tripped[t.ID] = true
			// Conditions of before are put right when nothing waits any more.
			k.before = true
		}
		return nil
	})
}

// ask whether something may be removed. A trip is stored before it is acted on.
func (k *breakerKeeper) ask(ctx context.Context, r breaker.Removal) (breaker.Verdict, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.size(now)
	verdict, why := k.breaker.Ask(now, r, k.fleet, k.clusters[r.Cluster])
	k.dirty = true
	if verdict == breaker.Go {
		removed.WithLabelValues(r.Cluster, "replicas").Add(float64(r.Replicas))
		removed.WithLabelValues(r.Cluster, "objects").Add(float64(r.Objects))
		return verdict, why, nil
	}
	for _, t := range k.breaker.Trips() {
		if k.tripped[t.ID] {
			continue
		}
		if err := k.store(ctx, now); err != nil {
			return breaker.Wait, why, err
		}
		k.tripped[t.ID] = true
		klog.FromContext(ctx).Info("Removals are stopped", "trip", t.ID, "done", t.Done.String(), "limit", t.Limit.String())
	}
	return verdict, why, nil
}

// stopsDerived says whether removals that follow from placements are stopped.
func (k *breakerKeeper) stopsDerived() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.breaker.Trips(), func(t *breaker.Trip) bool { return strings.HasPrefix(t.ID, string(breaker.Derived)) })
}

// settled: nothing has to be removed from the copy.
func (k *breakerKeeper) settled(cluster string, key marks.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.breaker.Settled(cluster, key.String())
}

// sizeAge is how long sizes count: summing up looks at every copy.
const sizeAge = 3 * time.Second

// size sums up the fleet; mu is held. Templates count, since a mistaken
// placement or a cache that is not full yet makes the copies look few.
func (k *breakerKeeper) size(now time.Time) {
	if now.Sub(k.sized) < sizeAge {
		return
	}
	k.sized = now
	k.clusters = map[string]breaker.Size{}
	var copies breaker.Size
	for _, m := range k.engine.memberList() {
		s := m.size("")
		k.clusters[m.name] = s
		copies.Replicas, copies.Objects = copies.Replicas+s.Replicas, copies.Objects+s.Objects
	}
	templates := k.engine.templateReplicas()
	k.fleet = breaker.Size{Replicas: max(copies.Replicas, templates), Objects: copies.Objects}
}

// templateReplicas sums what the propagated templates want.
func (e *Engine) templateReplicas() int64 {
	var sum int64
	for gk := range divisibleKinds {
		w := e.kindOf(gk)
		if w == nil {
			continue
		}
		for _, obj := range w.informer.GetStore().List() {
			if t, ok := obj.(*template); ok && t.finalized() {
				sum += int64(t.replicas)
			}
		}
	}
	return sum
}

// store writes state and status; mu is held.
func (k *breakerKeeper) store(ctx context.Context, now time.Time) error {
	state, err := json.Marshal(k.breaker.State())
	if err != nil {
		return fmt.Errorf("the breaker's state: %w", err)
	}
	status, err := json.Marshal(k.status())
	if err != nil {
		return fmt.Errorf("the breaker's status: %w", err)
	}
	if err := k.engine.mergeData(ctx, BreakerName, map[string]any{breakerStateKey: string(state), BreakerStatusKey: string(status)}); err != nil {
		return err
	}
	k.dirty, k.stored = false, now
	return nil
}

// shownExamples is how many removals of a trip are named.
const shownExamples = 20

func (k *breakerKeeper) status() []BreakerStatus {
	out := []BreakerStatus{}
	for _, t := range k.breaker.Trips() {
		s := BreakerStatus{Trip: *t}
		for _, w := range k.breaker.Waiting(t.ID) {
			s.Removals++
			total := w.Total()
			s.Waiting = breaker.Amount{Replicas: s.Waiting.Replicas + total.Replicas, Objects: s.Waiting.Objects + total.Objects}
			if !slices.Contains(s.Clusters, w.Cluster) {
				s.Clusters = append(s.Clusters, w.Cluster)
			}
			if len(s.Examples) < shownExamples {
				s.Examples = append(s.Examples, describeRemoval(w.Removal))
			}
		}
		slices.Sort(s.Clusters)
		out = append(out, s)
	}
	return out
}

func describeRemoval(r breaker.Removal) string {
	what := fmt.Sprintf("%d replicas of", r.Total().Replicas)
	if r.Total().Objects > 0 {
		what = "all of"
	}
	parts := strings.SplitN(r.Template, "/", 3)
	return fmt.Sprintf("%s: %s %s", r.Cluster, what, parts[len(parts)-1])
}

const (
	breakerTick  = time.Second
	breakerStore = 5 * time.Second
)

// run takes answers, ends what is over, and tells of it.
func (k *breakerKeeper) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(breakerTick):
		}
		k.answer(ctx)
		k.turn(ctx)
		k.tell(ctx)
	}
}

// turn lets time pass, and stores what has changed.
func (k *breakerKeeper) turn(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.idle++; !k.engine.idle() {
		k.idle = 0
	}
	if k.idle == idleTicks {
		k.breaker.Tried(now)
	}
	for _, t := range k.breaker.Tick(now) {
		delete(k.tripped, t.ID)
		k.dirty = true
		klog.FromContext(ctx).Info("Removals are no longer stopped", "trip", t.ID)
	}
	pause := breakerStore
	if len(k.tripped) > 0 {
		pause = breakerTick
	}
	if !k.dirty || now.Sub(k.stored) < pause {
		return
	}
	if err := k.store(ctx, now); err != nil {
		klog.FromContext(ctx).Error(err, "The breaker's state cannot be stored")
	}
}

// idleTicks in a row without anything queued mean that all has been tried.
const idleTicks = 3

// idle says that nothing is queued.
func (e *Engine) idle() bool {
	if e.templateQueue.Len() > 0 {
		return false
	}
	for _, m := range e.memberList() {
		if m.queue.Len() > 0 {
			return false
		}
	}
	return true
}

// answer carries out what operators have said. Answers are looked for only
// while something is stopped.
func (k *breakerKeeper) answer(ctx context.Context) {
	k.mu.Lock()
	idle := len(k.breaker.Trips()) == 0
	k.mu.Unlock()
	if idle {
		return
	}
	data, err := k.configMap(ctx, BreakerAnswersName)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Answers cannot be read")
		return
	}
	for id, text := range data {
		var a BreakerAnswer
		if err := json.Unmarshal([]byte(text), &a); err != nil || a.Answer != breaker.Approved && a.Answer != breaker.Rejected {
			klog.FromContext(ctx).Error(err, "An answer to the breaker cannot be read", "answer", text)
		} else {
			k.take(ctx, a)
		}
		if err := k.engine.mergeData(ctx, BreakerAnswersName, map[string]any{id: nil}); err != nil {
			klog.FromContext(ctx).Error(err, "An answer cannot be put away")
		}
	}
}

func (k *breakerKeeper) take(ctx context.Context, a BreakerAnswer) {
	k.mu.Lock()
	waiting, known := k.breaker.Answer(time.Now(), a.Trip, a.Answer, a.By)
	k.dirty = true
	k.mu.Unlock()
	klog.FromContext(ctx).Info("An operator has answered the breaker", "trip", a.Trip, "answer", a.Answer, "by", a.By, "known", known, "removals", len(waiting))
	for _, w := range waiting {
		key, err := marks.ParseKey(w.Template)
		if m := k.engine.member(w.Cluster); err == nil && m != nil {
			m.queue.Add(key)
		}
	}
}

// tell keeps conditions, Events and metrics.
func (k *breakerKeeper) tell(ctx context.Context) {
	k.mu.Lock()
	status := k.status()
	k.mu.Unlock()
	said := map[string]string{}
	tripped.Reset()
	for _, s := range status {
		tripped.WithLabelValues(s.ID).Set(float64(s.Removals))
		for _, cluster := range s.Clusters {
			if said[cluster] == "" {
				said[cluster] = fmt.Sprintf("removals wait for approval (%s: %s in %d removals), see: multicluster-apiserver breaker status", s.ID, s.Waiting, s.Removals)
			}
		}
	}
	for _, m := range k.engine.memberList() {
		message, stopped := said[m.name]
		switch {
		case stopped && !k.stopped[m.name]:
			k.engine.clusterCondition(ctx, m.name, metav1.Condition{Type: ConditionRemovalsAllowed, Status: metav1.ConditionFalse, Reason: "BreakerTripped", Message: message})
			k.engine.clusterEvent(ctx, m.name, corev1.EventTypeWarning, "BreakerTripped", message)
			k.stopped[m.name] = true
		case !stopped && (k.stopped[m.name] || k.before && len(status) == 0):
			k.engine.clusterCondition(ctx, m.name, metav1.Condition{Type: ConditionRemovalsAllowed, Status: metav1.ConditionTrue, Reason: "NothingWaits", Message: "no removal waits for approval"})
			delete(k.stopped, m.name)
		}
	}
	k.before = k.before && len(status) > 0
}
