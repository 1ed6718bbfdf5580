package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestCounted(t *testing.T) {
	for name, c := range map[string]struct {
		spec, hard, used, usage corev1.ResourceList
		want                    corev1.ResourceList
		changed                 bool
	}{
		"first count":           {spec: list("pods", "5"), usage: list("pods", "2"), want: list("pods", "2"), changed: true},
		"nothing new":           {spec: list("pods", "5"), hard: list("pods", "5"), used: list("pods", "2"), usage: list("pods", "2"), want: list("pods", "2")},
		"equal in other words":  {spec: list("cpu", "1"), hard: list("cpu", "1"), used: list("cpu", "500m"), usage: list("cpu", "0.5"), want: list("cpu", "500m")},
		"a Pod has gone":        {spec: list("pods", "5"), hard: list("pods", "5"), used: list("pods", "2"), usage: list("pods", "1"), want: list("pods", "1"), changed: true},
		"another limit":         {spec: list("pods", "6"), hard: list("pods", "5"), used: list("pods", "2"), usage: list("pods", "2"), want: list("pods", "2"), changed: true},
		"no longer limited":     {spec: list("pods", "5"), hard: list("pods", "5", "cpu", "1"), used: list("pods", "2", "cpu", "1"), usage: list("pods", "2"), want: list("pods", "2"), changed: true},
		"counted by nobody":     {spec: list("x/y", "5"), hard: list("x/y", "5"), used: list("x/y", "3"), usage: list(), want: list("x/y", "3")},
		"more than was limited": {spec: list("pods", "5"), hard: list("pods", "5"), used: list("pods", "2"), usage: list("pods", "2", "cpu", "4"), want: list("pods", "2")},
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: c.spec}, Status: corev1.ResourceQuotaStatus{Hard: c.hard, Used: c.used}}
		next, changed := counted(q, c.usage)
		if changed != c.changed || !quotav1.Equals(next.Status.Used, c.want) {
			t.Errorf("%s: %v changed %v, want %v changed %v", name, next.Status.Used, changed, c.want, c.changed)
		}
		if changed && !quotav1.Equals(next.Status.Hard, c.spec) {
			t.Errorf("%s: hard %v", name, next.Status.Hard)
		}
	}
}

func TestConstrainsPods(t *testing.T) {
	for name, want := range map[string]bool{
		"pods": true, "cpu": true, "limits.memory": true, "requests.nvidia.com/gpu": true, "count/pods": true,
		"configmaps": false, "count/deployments.apps": false, "services.nodeports": false, "requests.storage": false,
	} {
		if got := constrainsPods(&corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list(name, "1")}}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
