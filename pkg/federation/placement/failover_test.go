package placement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

func TestFailed(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	on := &policyv1alpha1.FailoverBehavior{Cluster: &policyv1alpha1.ClusterFailoverBehavior{TolerationSeconds: new(int32(60))}}
	byDefault := &policyv1alpha1.FailoverBehavior{Cluster: &policyv1alpha1.ClusterFailoverBehavior{}}
	taint := func(effect corev1.TaintEffect, since int) []corev1.Taint {
		x := corev1.Taint{Key: "k", Effect: effect}
		if since >= 0 {
			x.TimeAdded = &metav1.Time{Time: ago(since)}
		}
		return []corev1.Taint{x}
	}
	tolerate := func(seconds ...int64) (out []corev1.Toleration) {
		for _, s := range seconds {
			out = append(out, corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: new(s)})
		}
		return out
	}
	forever := []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	for name, c := range map[string]struct {
		failover    *policyv1alpha1.FailoverBehavior
		tolerations []corev1.Toleration
		outage      Outage
		failed      bool
		next        int // seconds from now; 0 is never
	}{
		"well":                               {on, nil, Outage{Ready: true}, false, 0},
		"failover is off":                    {nil, nil, Outage{Since: ago(10000), Taints: taint(corev1.TaintEffectNoExecute, 10000)}, false, 0},
		"only applications":                  {&policyv1alpha1.FailoverBehavior{}, nil, Outage{Since: ago(10000)}, false, 0},
		"out of reach, not long":             {on, nil, Outage{Since: ago(59)}, false, 1},
		"out of reach for too long":          {on, nil, Outage{Since: ago(60)}, true, 0},
		"out of reach, tolerated by default": {byDefault, nil, Outage{Since: ago(299)}, false, 1},
		"nobody knows since when":            {on, nil, Outage{}, false, 0},
		"ready again":                        {on, nil, Outage{Ready: true, Since: ago(100)}, false, 0},
		"NoSchedule":                         {on, nil, Outage{Ready: true, Taints: taint(corev1.TaintEffectNoSchedule, 1000)}, false, 0},
		"NoExecute":                          {on, nil, Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, 0)}, true, 0},
		"NoExecute without a time":           {on, nil, Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, -1)}, true, 0},
		"NoExecute, tolerated":               {on, forever, Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, 9999)}, false, 0},
		"NoExecute, tolerated for a while":   {on, tolerate(30), Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, 10)}, false, 20},
		"NoExecute, tolerated for too long":  {on, tolerate(30), Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, 30)}, true, 0},
		"the shortest toleration counts":     {on, append(tolerate(30, 10), forever...), Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, 10)}, true, 0},
		"a toleration without a beginning":   {on, tolerate(30), Outage{Ready: true, Taints: taint(corev1.TaintEffectNoExecute, -1)}, false, 0},
		"PreferNoExecute":                    {on, forever, Outage{Ready: true, Taints: taint(policyv1alpha1.TaintEffectPreferNoExecute, 59)}, false, 1},
		"PreferNoExecute for too long":       {on, forever, Outage{Ready: true, Taints: taint(policyv1alpha1.TaintEffectPreferNoExecute, 60)}, true, 0},
		"whatever comes first":               {on, tolerate(30), Outage{Since: ago(5), Taints: taint(corev1.TaintEffectNoExecute, 10)}, false, 20},
	} {
		why, next := Failed(c.failover, c.tolerations, c.outage, now)
		want := time.Time{}
		if c.next > 0 {
			want = ago(-c.next)
		}
		if (why != "") != c.failed || !next.Equal(want) {
			t.Errorf("%s: %q, again at %v, want %v", name, why, next, want)
		}
	}
}

func TestFleetFails(t *testing.T) {
	for _, c := range []struct {
		broken, all int
		want        bool
	}{{0, 0, false}, {1, 1, true}, {1, 2, false}, {2, 3, true}, {2, 4, false}} {
		if got := FleetFails(c.broken, c.all); got != c.want {
			t.Errorf("%d of %d: %v", c.broken, c.all, got)
		}
	}
}
