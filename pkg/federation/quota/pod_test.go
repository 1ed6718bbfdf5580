package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPodOf(t *testing.T) {
	const template = `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"200m"}}}]}}`
	q := func(scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "9", "requests.cpu", "1"), Scopes: scopes}}
	}
	for name, c := range map[string]struct {
		quota  *corev1.ResourceQuota
		kind   string
		raw    string
		number int64
	}{
		"replicas":          {q(), "Deployment", `{"spec":{"replicas":3,"template":` + template + `}}`, 3},
		"not said":          {q(), "Deployment", `{"spec":{"template":` + template + `}}`, 1},
		"in every node":     {q(), "DaemonSet", `{"spec":{"template":` + template + `}}`, 1},
		"side by side":      {q(), "Job", `{"spec":{"parallelism":4,"template":` + template + `}}`, 4},
		"over":              {q(), "Job", `{"spec":{"template":` + template + `},"status":{"conditions":[{"type":"Complete","status":"True"}]}}`, 0},
		"again and again":   {q(), "CronJob", `{"spec":{"jobTemplate":{"spec":{"parallelism":2,"template":` + template + `}}}}`, 2},
		"out of scope":      {q(corev1.ResourceQuotaScopeBestEffort), "Deployment", `{"spec":{"replicas":3,"template":` + template + `}}`, 0},
		"of another shape":  {q(), "Deployment", `{"spec":{"replicas":"many"}}`, 0},
		"without any Pods":  {q(), "Deployment", `{"spec":{"replicas":3}}`, 0},
		"in scope of quota": {q(corev1.ResourceQuotaScopeNotBestEffort), "Deployment", `{"spec":{"replicas":3,"template":` + template + `}}`, 3},
	} {
		one, number := PodOf(c.quota, schema.GroupKind{Kind: c.kind}, []byte(c.raw))
		if number != c.number {
			t.Errorf("%s: %d", name, number)
		}
		if number > 0 && (count(one) != 1 || units("requests.cpu", one["requests.cpu"]) != 200) {
			t.Errorf("%s: %v", name, one)
		}
	}
}
