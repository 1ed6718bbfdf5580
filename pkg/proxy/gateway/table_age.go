package gateway

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// nextAge says when an age that is printed changes next: it is told in seconds
// at first, then in minutes, hours and days. That may be sooner than it changes.
func nextAge(since, now time.Time) time.Time {
	step := 24 * time.Hour
	switch age := now.Sub(since); {
	case age < 0:
		return now
	case age < 10*time.Minute:
		step = time.Second
	case age < 8*time.Hour:
		step = time.Minute
	case age < 8*24*time.Hour:
		step = time.Hour
	}
	return since.Add((now.Sub(since)/step + 1) * step)
}

// hasKnownAges says that all times in the rows of a kind are known to rowHolds.
func hasKnownAges(k *kind) bool { return k.gvk == corev1.SchemeGroupVersion.WithKind("Pod") }

// rowHolds says until when the row of a Pod that is made now stays the same: it
// shows how old the Pod is, and when a container was restarted.
func rowHolds(k *kind, o *cache.Object, now time.Time) time.Time {
	obj, err := k.decodePrinted(o)
	pod, ok := obj.(*corev1.Pod)
	if err != nil || !ok {
		return now
	}
	until := now.Add(24 * time.Hour)
	for _, t := range timesOf(pod) {
		if next := nextAge(t.Time, now); !t.IsZero() && next.Before(until) {
			until = next
		}
	}
	return until
}

func timesOf(pod *corev1.Pod) []metav1.Time {
	times := []metav1.Time{pod.CreationTimestamp}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if last := s.LastTerminationState.Terminated; last != nil {
				times = append(times, last.FinishedAt)
			}
		}
	}
	return times
}
