package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/fence"
)

// ConditionWritesAllowed of a Cluster says whether the engine may write to it.
const ConditionWritesAllowed = "WritesAllowed"

// FenceFinding is what was last found in a member, as `restore status` shows it.
type FenceFinding struct {
	Verdict string      `json:"verdict"`
	Why     string      `json:"why"`
	Mark    *fence.Mark `json:"mark,omitempty"`
	At      metav1.Time `json:"at"`
}

// showFence tells what was found: in the Cluster's condition, the finding that
// `restore status` reads, an Event, a metric.
func (e *Engine) showFence(ctx context.Context, m *member, verdict fence.Verdict, why string, mark *fence.Mark) {
	e.storeFinding(ctx, FenceStatusName, m.name, FenceFinding{Verdict: verdict.String(), Why: why, Mark: mark, At: metav1.Now()})
	switch verdict {
	case fence.Behind:
		e.showRefusal(ctx, m, "ControlPlaneBehind", why+". Nothing is written to any member until: multicluster-apiserver restore accept")
	case fence.Foreign:
		e.showRefusal(ctx, m, "OtherControlPlane", why+". Unjoin it there, or take it over: multicluster-apiserver restore accept --take-over "+m.name)
	case fence.Pass, fence.Claim:
		fenced.WithLabelValues(m.name).Set(0)
		e.clusterCondition(ctx, m.name, metav1.Condition{
			Type: ConditionWritesAllowed, Status: metav1.ConditionTrue, Reason: "FencePassed", Message: "the engine writes to the cluster",
		})
	}
}

func (e *Engine) showRefusal(ctx context.Context, m *member, reason, message string) {
	fenced.WithLabelValues(m.name).Set(1)
	if e.clusterCondition(ctx, m.name, metav1.Condition{
		Type: ConditionWritesAllowed, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}) {
		e.clusterEvent(ctx, m.name, corev1.EventTypeWarning, reason, message)
	}
}

// storeFinding keeps one finding under a key of a ConfigMap of ours. It is for
// people: a failure is logged and made good by the next one.
func (e *Engine) storeFinding(ctx context.Context, name, key string, finding any) {
	raw, err := json.Marshal(finding)
	if err == nil {
		err = e.mergeData(ctx, name, map[string]any{key: string(raw)})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "A finding cannot be shown", "configMap", name, "key", key)
	}
}

// mergeData sets keys of a ConfigMap in our namespace of the control plane; nil
// removes one.
func (e *Engine) mergeData(ctx context.Context, name string, data map[string]any) error {
	in := e.client.Resource(configMaps).Namespace(clusterv1alpha1.CredentialsNamespace)
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	_, err = in.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fenceManager})
	if apierrors.IsNotFound(err) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		u.SetName(name)
		if _, err = in.Create(ctx, u, metav1.CreateOptions{FieldManager: fenceManager}); err == nil || apierrors.IsAlreadyExists(err) {
			_, err = in.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fenceManager})
		}
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	return nil
}

// shownConditions are the conditions of Clusters that the engine has written.
type shownConditions struct {
	mu    sync.Mutex
	shown map[string]metav1.Condition
}

var clusters = clusterv1alpha1.SchemeGroupVersion.WithResource("clusters")

// clusterCondition sets a condition of a Cluster, beside those of membership;
// it reports whether its status or reason is another than before.
func (e *Engine) clusterCondition(ctx context.Context, cluster string, c metav1.Condition) (turned bool) {
	e.shown.mu.Lock()
	defer e.shown.mu.Unlock()
	key := cluster + "/" + c.Type
	if was, ok := e.shown.shown[key]; ok && was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	turned, err := e.writeClusterCondition(ctx, cluster, c)
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "A condition of a Cluster cannot be written", "cluster", cluster, "condition", c.Type)
		}
		return false
	}
	if e.shown.shown == nil {
		e.shown.shown = map[string]metav1.Condition{}
	}
	e.shown.shown[key] = c
	return turned
}

func (e *Engine) writeClusterCondition(ctx context.Context, cluster string, c metav1.Condition) (turned bool, err error) {
	u, err := e.client.Resource(clusters).Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	present := &clusterv1alpha1.Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, present); err != nil {
		return false, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	turned = true
	if was := meta.FindStatusCondition(present.Status.Conditions, c.Type); was != nil {
		turned = was.Status != c.Status || was.Reason != c.Reason
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		if !turned && was.Message == c.Message {
			return false, nil
		}
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": clusterv1alpha1.SchemeGroupVersion.String(), "kind": "Cluster",
		"metadata": map[string]any{"name": cluster, "uid": present.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{c}},
	})
	if err != nil {
		return false, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	_, err = e.client.Resource(clusters).Patch(ctx, cluster, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: "isthmus-" + c.Type, Force: new(true)}, "status")
	if err != nil {
		return false, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	return turned, nil
}

// clusterEvent tells something about a Cluster.
func (e *Engine) clusterEvent(ctx context.Context, cluster, typ, reason, message string) {
	ref := &corev1.ObjectReference{APIVersion: clusterv1alpha1.SchemeGroupVersion.String(), Kind: "Cluster", Name: cluster}
	if u, err := e.client.Resource(clusters).Get(ctx, cluster, metav1.GetOptions{}); err == nil {
		ref.UID = u.GetUID()
	}
	e.recorder.Event(ref, typ, reason, message)
}
