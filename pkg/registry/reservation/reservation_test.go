package reservation

import (
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestConfigMapOnlyGrows(t *testing.T) {
	store := ConfigMap{Client: fake.NewClientset(), Namespace: "ns", Name: "numbers"}
	if n, err := store.Load(t.Context()); n != 0 || err != nil {
		t.Fatalf("at first: %d, %v", n, err)
	}
	for _, step := range []struct{ store, want uint64 }{{100, 100}, {90, 100}, {1 << 62, 1 << 62}} {
		if err := store.Store(t.Context(), step.store); err != nil {
			t.Fatal(err)
		}
		if n, err := store.Load(t.Context()); n != step.want || err != nil {
			t.Errorf("after %d: %d, %v, want %d", step.store, n, err, step.want)
		}
	}
}

// Another gateway writes in between: the higher number stays.
func TestConfigMapConflict(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "numbers"}, Data: map[string]string{dataKey: "10"}})
	var conflicts atomic.Int32
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts.Add(1) > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "numbers", nil)
	})
	store := ConfigMap{Client: client, Namespace: "ns", Name: "numbers"}
	if err := store.Store(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Load(t.Context()); n != 20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestConfigMapWithGarbage(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "numbers"}, Data: map[string]string{dataKey: "many"}})
	store := ConfigMap{Client: client, Namespace: "ns", Name: "numbers"}
	if _, err := store.Load(t.Context()); err == nil {
		t.Error("garbage was read as a number")
	}
	if err := store.Store(t.Context(), 5); err == nil {
		t.Error("garbage was overwritten: the numbers given out before are lost with it")
	}
}
