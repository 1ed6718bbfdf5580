package app

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
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

func TestUnownedSets(t *testing.T) {
	set := func(cluster string, replicas int32, change func(*appsv1.ReplicaSet)) appsv1.ReplicaSet {
		s := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"isthmus.dev/cluster": cluster}}}
		s.Spec.Replicas = &replicas
		if change != nil {
			change(&s)
		}
		return s
	}
	got := unownedSets([]appsv1.ReplicaSet{
		set("m1", 2, nil), set("m2", 1, nil), set("m2", 0, nil), set("", 3, nil),
		set("m1", 4, func(s *appsv1.ReplicaSet) { s.DeletionTimestamp = new(metav1.Now()) }),
		set("m1", 4, func(s *appsv1.ReplicaSet) {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Controller: new(true)}}
		}),
	})
	if want := map[string]int32{"m1": 2, "m2": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
