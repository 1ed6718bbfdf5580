package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/priority"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
)

var (
	autoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	autoscalers    = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")
)

// scaler is what counts of a HorizontalPodAutoscaler: what it scales, and
// between which numbers.
type scaler struct {
	metav1.ObjectMeta
	target marks.Key // without a version
	replicas.Autoscaler
}

// byTarget indexes autoscalers by what they scale.
const byTarget = "target"

// scalerSpec is the spec of v2, of which v1 shares what is read here.
type scalerSpec struct {
	Spec struct {
		Target struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		Min *int32 `json:"minReplicas"`
		Max int32  `json:"maxReplicas"`
	} `json:"spec"`
}

func readScaler(meta metav1.ObjectMeta, raw []byte) (*scaler, error) {
	var s scalerSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("autoscaler %s/%s: %w", meta.Namespace, meta.Name, err)
	}
	gv, err := schema.ParseGroupVersion(s.Spec.Target.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("autoscaler %s/%s: %w", meta.Namespace, meta.Name, err)
	}
	out := &scaler{ObjectMeta: meta, Autoscaler: replicas.Autoscaler{Min: 1, Max: s.Spec.Max}}
	out.target = marks.Key{GroupVersionKind: gv.WithKind(s.Spec.Target.Kind), Namespace: meta.Namespace, Name: s.Spec.Target.Name}
	if s.Spec.Min != nil {
		out.Min = *s.Spec.Min
	}
	return out, nil
}

func recordScaler(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	raw, err := json.Marshal(map[string]any{"spec": u.Object["spec"]})
	if err != nil {
		return nil, fmt.Errorf("autoscaler %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	meta := metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), ResourceVersion: u.GetResourceVersion(), UID: u.GetUID()}
	return readScaler(meta, raw)
}

// indexByTarget finds the autoscalers of a workload among templates and in
// members.
func indexByTarget(obj any) ([]string, error) {
	switch s := obj.(type) {
	case *scaler:
		return []string{identity(s.target)}, nil
	case *template:
		if read, err := readScaler(s.ObjectMeta, s.raw); err == nil {
			return []string{identity(read.target)}, nil
		}
	}
	return nil, nil
}

// watchScalersLocked watches all autoscalers of a member, whoever made them.
func (m *member) watchScalersLocked(ctx context.Context) {
	if m.scalers != nil {
		return
	}
	w := &copyWatch{informer: m.newInformer(m.client.Resource(autoscalers), nil)}
	notify := func(obj any, initial bool) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if s, ok := obj.(*scaler); ok && divisible(s.target.GroupKind()) {
			m.queue.AddAs(m.engine.canonical(s.target), levelOf(initial))
		}
	}
	_, addErr := w.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: notify, DeleteFunc: func(obj any) { notify(obj, false) }, UpdateFunc: func(_, obj any) { notify(obj, false) },
	})
	err := errors.Join(addErr, w.informer.SetTransform(recordScaler),
		w.informer.AddIndexers(cache.Indexers{byTarget: indexByTarget}),
		w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			if w.failed(err) {
				m.scalersKnown()
			}
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Autoscalers cannot be watched")
		return
	}
	m.scalers = w
	m.wg.Go(func() { w.informer.Run(m.ctx.Done()) })
	m.wg.Go(func() {
		if cacheFilled(m.ctx, w.informer) {
			m.scalersKnown()
		}
	})
}

// knowsScalers: the autoscalers of the member are known, or cannot be.
func (m *member) knowsScalers() bool {
	m.mu.RLock()
	w := m.scalers
	m.mu.RUnlock()
	return w == nil || w.settled()
}

// scalersKnown looks again at what has waited for it.
func (m *member) scalersKnown() {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for key, a := range m.applied {
		if a.unsure {
			m.queue.AddBacklog(key)
		}
	}
}

// noteUnsure has a copy looked at again when the autoscalers come to be known:
// until then its replicas may be those of one, and stay.
func (m *member) noteUnsure(key marks.Key) {
	known := m.knowsScalers()
	m.change(key, func(a *applied) { a.unsure = !known })
	if !known && m.knowsScalers() {
		m.queue.Add(key) // between the two
	}
}

// scaled says whether the replicas of a copy are an autoscaler's, or may be.
func (e *Engine) scaled(key marks.Key, m *member, template, present int32, fixed bool) bool {
	if !m.knowsScalers() {
		return replicas.MayBeInCharge(template, fixed)
	}
	return replicas.InCharge(e.scalers(key, m), template, present, fixed)
}

// scalers are the autoscalers that act on a workload in a member, or are about
// to: those that are there, and templates that are decided to go there.
func (e *Engine) scalers(key marks.Key, m *member) []replicas.Autoscaler {
	var out []replicas.Autoscaler
	m.mu.RLock()
	w := m.scalers
	m.mu.RUnlock()
	if w != nil {
		objs, err := w.informer.GetIndexer().ByIndex(byTarget, identity(key))
		if err == nil {
			for _, obj := range objs {
				out = append(out, obj.(*scaler).Autoscaler)
			}
		}
	}
	for _, s := range e.scalerTemplates(key) {
		d := e.decisionOf(s.key())
		if d == nil {
			continue
		}
		if _, ok := d.targets[m.name]; ok {
			out = append(out, s.Autoscaler)
		}
	}
	return out
}

func (s *scaler) key() marks.Key {
	return marks.Key{GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind(autoscalerKind.Kind), Namespace: s.Namespace, Name: s.Name}
}

// scalerTemplates are the control plane's autoscalers of a workload.
func (e *Engine) scalerTemplates(key marks.Key) []*scaler {
	w := e.kindOf(autoscalerKind)
	if w == nil {
		return nil
	}
	objs, err := w.informer.GetIndexer().ByIndex(byTarget, identity(key))
	if err != nil {
		return nil
	}
	var out []*scaler
	for _, obj := range objs {
		t, ok := obj.(*template)
		if !ok || t.DeletionTimestamp != nil {
			continue
		}
		if s, err := readScaler(t.ObjectMeta, t.raw); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// boundsOf are the bounds of all templates that scale a workload.
func (e *Engine) boundsOf(key marks.Key) []replicas.Autoscaler {
	var out []replicas.Autoscaler
	for _, s := range e.scalerTemplates(key) {
		out = append(out, s.Autoscaler)
	}
	return out
}

// divideScaler has an autoscaler follow its workload: it goes where the
// workload goes, with its part of the bounds.
func (e *Engine) divideScaler(t *template, d *decision) {
	s, err := readScaler(t.ObjectMeta, t.raw)
	if err != nil {
		return // the API server has let it pass: no field of it is ours to judge
	}
	b := e.bindings.get(e.canonical(s.target))
	if b == nil || len(b.Spec.Clusters) == 0 {
		return
	}
	weights := map[string]int32{}
	for _, c := range b.Spec.Clusters {
		if _, ok := d.targets[c.Name]; ok {
			weights[c.Name] = c.Replicas
		}
	}
	if len(weights) == 0 {
		return // placed apart from its workload by a policy
	}
	for cluster := range d.targets {
		if _, ok := weights[cluster]; !ok {
			delete(d.targets, cluster)
		}
	}
	if spreads(b.Spec.Placement) {
		d.bounds = replicas.Bounds(s.Autoscaler, weights, t.UID)
	}
}

// enqueueScalers looks again at the autoscalers of a workload.
func (e *Engine) enqueueScalers(key marks.Key) {
	for _, s := range e.scalerTemplates(key) {
		e.templateQueue.Add(s.key())
	}
}

// scalerChanged looks again at what an autoscaler scales.
func (e *Engine) scalerChanged(t *template, level priority.Level) {
	if s, err := readScaler(t.ObjectMeta, t.raw); err == nil && divisible(s.target.GroupKind()) {
		e.templateQueue.AddAs(e.canonical(s.target), level)
	}
}
