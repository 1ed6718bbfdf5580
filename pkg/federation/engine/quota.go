package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
)

var quotaKind = schema.GroupKind{Kind: "ResourceQuota"}

const (
	// quotaShares, on the binding of a ResourceQuota, is its quota.State.
	quotaShares = "isthmus.dev/quota-shares"
	// quotaStep, on a copy, is the step of the part that was told.
	quotaStep = "isthmus.dev/quota-step"
	// quotaPause is how soon shares follow upon what is used. What is wanted
	// makes them follow at once.
	quotaPause = 2 * time.Second
	// wantLasts is how long a refused request is remembered: by then it is
	// among what is used, or nobody tries any more.
	wantLasts = 30 * time.Second
)

// quotaRecord is what a copy of a ResourceQuota shows.
type quotaRecord struct {
	hard, used corev1.ResourceList
	step       int64
}

func recordQuota(u *unstructured.Unstructured) (*quotaRecord, error) {
	var q corev1.ResourceQuota
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &q); err != nil {
		return nil, fmt.Errorf("quota: %w", err)
	}
	step, err := strconv.ParseInt(q.Annotations[quotaStep], 10, 64)
	if err != nil {
		step = -1 // somebody has changed it: nothing is known
	}
	return &quotaRecord{hard: q.Spec.Hard, used: q.Status.Used, step: step}, nil
}

// divideQuota decides every cluster's part of a ResourceQuota.
func (e *Engine) divideQuota(key marks.Key, t *template, b *binding, d *decision) {
	u, err := t.decode()
	if err != nil {
		return
	}
	q := &corev1.ResourceQuota{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, q) != nil {
		return // the API server has let it pass
	}
	state := quotaState(b, t)
	now := time.Now()
	wanted := e.wantedOf(q)
	assigned := quota.Shares{}
	if text := q.Annotations[quota.Assignments]; text != "" && json.Unmarshal([]byte(text), &assigned) != nil {
		assigned = quota.Shares{}
	}
	clusters, seen := make([]quota.Cluster, 0, len(d.targets)), map[string]quota.Seen{}
	for _, m := range e.memberList() {
		_, target := d.targets[m.name]
		_, known := state[m.name]
		filled := m.info().Ready && m.filled(key.GroupKind()) == nil
		there := m.copy(key)
		s := quota.Seen{Step: -1, Gone: !target && filled && there == nil}
		c := quota.Cluster{Name: m.name, Wanted: wanted[m.name], Fixed: assigned[m.name], Frozen: !m.info().Ready || known && !filled}
		if filled && there != nil && there.quota != nil {
			s.Hard, s.Step = there.quota.hard, there.quota.step
			c.Used = there.quota.used
		}
		if asked := askedOf(b, m.name, now); asked != nil {
			c.Wanted = quotav1.Max(c.Wanted, quotav1.Add(quotav1.Mask(c.Used, quotav1.ResourceNames(asked)), asked))
		}
		seen[m.name] = s
		if target {
			clusters = append(clusters, c)
		}
	}
	for name := range state {
		if _, there := seen[name]; !there {
			delete(state, name) // has left the fleet
		}
	}
	d.quota = state.Next(q.Spec.Hard, quota.Plan(q.Spec.Hard, clusters, state.Granted(), t.UID), seen)
}

func quotaState(b *binding, t *template) quota.State {
	state := quota.State{}
	if b == nil || b.Spec.Resource.UID != t.UID {
		return state
	}
	if json.Unmarshal([]byte(b.Annotations[quotaShares]), &state) != nil {
		return quota.State{}
	}
	return state
}

// noteQuota puts on record what is granted, before anybody is told.
func noteQuota(out *binding, d *decision, now time.Time) error {
	if d.quota == nil {
		return nil
	}
	for key := range out.Annotations {
		if cluster, ok := strings.CutPrefix(key, marks.QuotaWanted); ok && askedOf(out, cluster, now) == nil {
			delete(out.Annotations, key)
		}
	}
	former := quota.State{}
	if json.Unmarshal([]byte(out.Annotations[quotaShares]), &former) == nil && equality.Semantic.DeepEqual(former, d.quota) {
		return nil
	}
	text, err := json.Marshal(d.quota)
	if err != nil {
		return fmt.Errorf("shares of the quota: %w", err)
	}
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, quotaShares, string(text))
	return nil
}

// askedOf is what a request has been refused for in a cluster of late.
func askedOf(b *binding, cluster string, now time.Time) corev1.ResourceList {
	if b == nil {
		return nil
	}
	var asked struct {
		At        time.Time           `json:"at"`
		Resources corev1.ResourceList `json:"resources"`
	}
	raw := b.Annotations[marks.QuotaWanted+cluster]
	if raw == "" || json.Unmarshal([]byte(raw), &asked) != nil || now.Sub(asked.At) > wantLasts || len(asked.Resources) == 0 {
		return nil
	}
	return asked.Resources
}

func asksChanged(old, obj *binding) bool {
	for key, v := range obj.Annotations {
		if strings.HasPrefix(key, marks.QuotaWanted) && old.Annotations[key] != v {
			return true
		}
	}
	return false
}

// wantedOf sums up, by cluster, what the workloads of the namespace are meant to
// have of what a quota limits.
func (e *Engine) wantedOf(q *corev1.ResourceQuota) map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for _, gk := range slices.Concat(slices.Collect(maps.Keys(divisibleKinds)), []schema.GroupKind{daemonSetKind, jobKind, cronJobKind}) {
		w := e.kindOf(gk)
		if w == nil {
			continue
		}
		for _, t := range e.templatesIn(w, q.Namespace) {
			b := e.bindings.get(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
			if b == nil || t.DeletionTimestamp != nil {
				continue
			}
			one, number := quota.PodOf(q, gk, t.raw)
			if number == 0 {
				continue
			}
			for _, c := range b.Spec.Clusters {
				n := number
				if divisible(gk) && (spreads(b.Spec.Placement) || c.Replicas > 0) {
					n = int64(c.Replicas)
				}
				out[c.Name] = quotav1.Add(out[c.Name], quota.Times(one, n))
			}
		}
	}
	return out
}

func (e *Engine) templatesIn(w *kindWatch, namespace string) []*template {
	objs, err := w.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil
	}
	out := make([]*template, 0, len(objs))
	for _, obj := range objs {
		if t, ok := obj.(*template); ok {
			out = append(out, t)
		}
	}
	return out
}

// enqueueQuotas looks again at the quotas of a namespace whose workloads have
// moved.
func (e *Engine) enqueueQuotas(key marks.Key) {
	w := e.kindOf(quotaKind)
	if w == nil || key.Namespace == "" || key.GroupKind() == quotaKind {
		return
	}
	if !divisible(key.GroupKind()) && key.GroupKind() != daemonSetKind && key.GroupKind() != jobKind && key.GroupKind() != cronJobKind {
		return
	}
	for _, t := range e.templatesIn(w, key.Namespace) {
		e.templateQueue.Add(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: t.Namespace, Name: t.Name})
	}
}

// quotaSeen: what a member allows goes into the next step, and what it uses into
// the next plan.
func (e *Engine) quotaSeen(key marks.Key, old, obj *copyRecord) {
	switch {
	case obj == nil || obj.quota == nil:
	case old == nil || old.quota == nil || old.quota.step != obj.quota.step || !equality.Semantic.DeepEqual(old.quota.hard, obj.quota.hard):
		e.templateQueue.Add(key)
	case !reflect.DeepEqual(old.quota.used, obj.quota.used):
		e.templateQueue.AddAfter(key, quotaPause)
	}
}

// QuotaParts is what the members show of a ResourceQuota, by cluster: those that
// can be reached and have it.
func (e *Engine) QuotaParts(namespace, name string) map[string]corev1.ResourceQuotaStatus {
	out := map[string]corev1.ResourceQuotaStatus{}
	w := e.kindOf(quotaKind)
	if w == nil {
		return out
	}
	for _, m := range e.memberList() {
		c := m.copy(marks.Key{GroupVersionKind: w.GroupVersionKind, Namespace: namespace, Name: name})
		if c != nil && c.quota != nil && m.info().Ready {
			out[m.name] = corev1.ResourceQuotaStatus{Hard: c.quota.hard, Used: c.quota.used}
		}
	}
	return out
}

// tellShare writes a cluster's part of a quota.
func (d *decision) tellShare(u *unstructured.Unstructured, cluster string) error {
	if d.quota == nil {
		return nil
	}
	part := d.quota[cluster]
	hard := map[string]any{}
	for name, q := range part.Told {
		hard[string(name)] = q.String()
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[quotaStep] = strconv.FormatInt(part.Step, 10)
	u.SetAnnotations(annotations)
	return unstructured.SetNestedMap(u.Object, hard, "spec", "hard")
}
