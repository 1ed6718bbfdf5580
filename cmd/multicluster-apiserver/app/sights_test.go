package app

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnowned(t *testing.T) {
	pod := func(cluster string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"isthmus.dev/cluster": cluster}}}
		if change != nil {
			change(&p)
		}
		return p
	}
	got := unowned([]corev1.Pod{
		pod("m1", nil), pod("m2", nil), pod("m2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		pod("m3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("m3", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		pod("m3", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}
		}),
		pod("", nil),
	})
	if want := map[string]int32{"m1": 1, "m2": 2}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
