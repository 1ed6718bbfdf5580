package placement

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Request is what one Pod asks for: the sum of its containers, or the largest
// init container where that is more, and one Pod.
func Request(p *corev1.PodSpec) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range p.Containers {
		for name, q := range p.Containers[i].Resources.Requests {
			s := out[name]
			s.Add(q)
			out[name] = s
		}
	}
	for i := range p.InitContainers {
		for name, q := range p.InitContainers[i].Resources.Requests {
			if have, ok := out[name]; !ok || q.Cmp(have) > 0 {
				out[name] = q
			}
		}
	}
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

// Room says how many Pods fit into what is free; nil when nothing is known of
// the cluster. A resource that the cluster does not report fits none, but for
// Pods, which it may not count.
func Room(free, request corev1.ResourceList) *int64 {
	if len(free) == 0 {
		return nil
	}
	room := int64(math.MaxInt32)
	for name, q := range request {
		if q.Sign() <= 0 {
			continue
		}
		have, ok := free[name]
		switch {
		case !ok && name == corev1.ResourcePods:
			continue
		case !ok || have.Sign() <= 0:
			room = 0
		default:
			room = min(room, have.MilliValue()/max(q.MilliValue(), 1))
		}
	}
	return &room
}
