package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
)

// What fails is told and comes again; what succeeds does not, and Run ends with
// its context.
func TestRun(t *testing.T) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	tries, told, ended := 0, 0, make(chan struct{})
	queue.Add("a")
	go func() {
		defer close(ended)
		Run(ctx, queue, func(_ context.Context, key string) error {
			if tries++; key != "a" || tries < 3 {
				return errors.New("not yet")
			}
			if tries == 3 {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			return nil
		}, func(string, error) { told++ })
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run does not end")
	}
	if tries != 3 || told != 2 || queue.NumRequeues("a") != 0 {
		t.Errorf("%d tries, %d told, %d requeues", tries, told, queue.NumRequeues("a"))
	}
}

func TestAs(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"nodeName": "n"}}}
	if p, err := As[corev1.Pod](u); err != nil || p.Name != "web" || p.Spec.NodeName != "n" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := As[corev1.Pod](&corev1.Pod{}); err == nil {
		t.Error("something else was taken")
	}
	u.Object["spec"] = "text"
	if _, err := As[corev1.Pod](u); err == nil {
		t.Error("a text was taken for a spec")
	}
}
